// Elements without markup: whatever a model, a tool or a person wrote becomes text, never HTML.

/**
 * An element. `on…` properties are listeners, `data` its data attributes; others are attributes, left out when they are
 * null or false. Children are nodes or texts; null ones are left out.
 */
export function element(name, properties = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (key === "data") Object.assign(made.dataset, value);
    else made.setAttribute(key, value === true ? "" : String(value));
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

/** A button that submits nothing. */
export function button(label, onclick, properties = {}) {
  return element("button", { type: "button", onclick, ...properties }, label);
}

let numbers = 0;

/** An id for an element that another one refers to. */
export function newId(name) {
  numbers += 1;
  return `${name}-${numbers}`;
}
