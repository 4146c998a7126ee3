// Markdown as models write it, as DOM nodes: no HTML passes through, and links go where a link may go.
//
// What is known: paragraphs, headings, fenced code, lists, quotes, tables, rules; emphasis, code, links.

import { button, element } from "./dom.js";

const SCHEMES = new Set(["http:", "https:", "mailto:"]);
const TOP = 2; // the level of the page's heading that answers stand under
const DEEPEST = 12; // lists and quotes inside each other; what is deeper stays text

const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})\s+(.*?)(?:\s+#+)?\s*$/;
const RULE = /^ {0,3}(?:(?:\*\s*){3,}|(?:-\s*){3,}|(?:_\s*){3,})$/;
const QUOTE = /^ {0,3}> ?(.*)$/;
const ITEM = /^(\s{0,12})([-*+]|\d{1,9}[.)])(\s+)(.*)$/;
const TABLE_RULE = /^\s*\|?(?:\s*:?-+:?\s*\|)+(?:\s*:?-+:?\s*)?$/;

/** Text that grows, shown as Markdown: only the blocks that changed are made anew. */
export class MarkdownView {
  #blocks = [];

  constructor(container) {
    this.container = container;
  }

  show(text) {
    const blocks = split(text.split("\n"));
    let same = 0;
    while (same < blocks.length && same < this.#blocks.length && equal(blocks[same], this.#blocks[same])) same += 1;
    while (this.container.childNodes.length > same) this.container.lastChild.remove();
    for (const block of blocks.slice(same)) this.container.append(blockNode(block, 0));
    this.#blocks = blocks;
  }
}

/** A text as nodes. */
export function markdown(text) {
  return split(text.split("\n")).map((block) => blockNode(block, 0));
}

function equal(one, other) {
  const alike = one.kind === other.kind && one.closed === other.closed && one.level === other.level;
  return alike && one.source === other.source;
}

// Blocks

function split(lines) {
  const blocks = [];
  let at = 0;
  let level = TOP; // of the heading before
  const add = (kind, end, more = {}) => {
    blocks.push({ kind, source: lines.slice(at, end).join("\n"), lines: lines.slice(at, end), ...more });
    at = end;
  };
  while (at < lines.length) {
    const line = lines[at];
    const fence = FENCE.exec(line);
    if (line.trim() === "") {
      at += 1;
    } else if (fence) {
      const end = endOfFence(lines, at + 1, fence[1]);
      add("code", Math.min(end + 1, lines.length), { closed: end < lines.length, language: fence[2].trim() });
    } else if (HEADING.test(line)) {
      // Whatever level a model begins with: below the page's own headings, and no step is left out.
      level = Math.min(TOP + HEADING.exec(line)[1].length, level + 1, 6);
      add("heading", at + 1, { level });
    } else if (RULE.test(line)) {
      add("rule", at + 1);
    } else if (QUOTE.test(line)) {
      let end = at + 1;
      while (end < lines.length && QUOTE.test(lines[end])) end += 1;
      add("quote", end);
    } else if (ITEM.test(line)) {
      add("list", endOfList(lines, at));
    } else if (startsTable(lines, at)) {
      let end = at + 2;
      while (end < lines.length && lines[end].includes("|") && lines[end].trim() !== "") end += 1;
      add("table", end);
    } else {
      let end = at + 1;
      while (end < lines.length && !interrupts(lines, end)) end += 1;
      add("paragraph", end);
    }
  }
  return blocks;
}

function endOfFence(lines, from, mark) {
  const closing = new RegExp(`^ {0,3}\\${mark[0]}{${mark.length},}\\s*$`);
  let end = from;
  while (end < lines.length && !closing.test(lines[end])) end += 1;
  return end;
}

function endOfList(lines, from) {
  const ordered = isOrdered(lines[from]);
  const margin = ITEM.exec(lines[from])[1].length;
  let end = from + 1;
  for (let at = end; at < lines.length; at += 1) {
    const line = lines[at];
    if (line.trim() === "") continue;
    const item = ITEM.exec(line);
    const belongs = indent(line) > margin || (item !== null && !RULE.test(line) && isOrdered(line) === ordered);
    const follows = at === end; // no blank line between
    if (!belongs && !(follows && !interrupts(lines, at))) break;
    end = at + 1;
  }
  return end;
}

function isOrdered(line) {
  return /^\s*\d/.test(line);
}

function indent(line) {
  return line.length - line.trimStart().length;
}

function startsTable(lines, at) {
  return lines[at].includes("|") && at + 1 < lines.length && TABLE_RULE.test(lines[at + 1]);
}

function interrupts(lines, at) {
  const line = lines[at];
  return (
    line.trim() === "" ||
    FENCE.test(line) ||
    HEADING.test(line) ||
    RULE.test(line) ||
    QUOTE.test(line) ||
    ITEM.test(line) ||
    startsTable(lines, at)
  );
}

function blockNode(block, depth) {
  switch (block.kind) {
    case "code":
      return codeNode(block);
    case "heading":
      return element(`h${block.level}`, {}, ...inline(HEADING.exec(block.source)[2]));
    case "rule":
      return element("hr");
    case "quote":
      return element("blockquote", {}, ...nested(block.lines.map((line) => QUOTE.exec(line)[1]), depth));
    case "list":
      return listNode(block, depth);
    case "table":
      return tableNode(block);
    default:
      return element("p", {}, ...inline(block.lines.map((line) => line.trimStart()).join("\n").trimEnd()));
  }
}

function nested(lines, depth) {
  if (depth >= DEEPEST) return [element("p", {}, lines.join("\n"))];
  return split(lines).map((block) => blockNode(block, depth + 1));
}

function codeNode(block) {
  const lines = block.lines.slice(1, block.closed ? -1 : undefined);
  const margin = indent(block.lines[0]);
  const text = lines.map((line) => line.slice(Math.min(margin, indent(line)))).join("\n");
  const code = element("code", {}, text);
  const name = block.language ? `Code, ${block.language}` : "Code";
  const pre = element("pre", { tabindex: "0", role: "group", "aria-label": name }, code);
  const head = element("div", { class: "code-head" }, element("span", {}, block.language || "code"));
  if (navigator.clipboard) {
    const copy = button("Copy", async () => {
      try {
        await navigator.clipboard.writeText(text);
        copy.textContent = "Copied";
      } catch {
        copy.textContent = "Cannot copy here"; // the browser asked, and somebody said no
      }
    });
    head.append(copy);
  }
  return element("div", { class: "code" }, head, pre);
}

function listNode(block, depth) {
  const first = ITEM.exec(block.lines[0]);
  const ordered = isOrdered(block.lines[0]);
  const start = ordered ? Number.parseInt(first[2], 10) : 1;
  const items = [];
  let margin = first[1].length;
  for (const line of block.lines) {
    const found = ITEM.exec(line);
    if (found !== null && (items.length === 0 || found[1].length <= margin)) {
      margin = found[1].length;
      const width = margin + found[2].length + Math.min(found[3].length, 4);
      items.push({ width, lines: [found[4]] });
    } else {
      const item = items.at(-1);
      item.lines.push(line.slice(Math.min(indent(line), item.width)));
    }
  }
  const loose = block.lines.some((line, at) => line.trim() === "" && at < block.lines.length - 1);
  return element(
    ordered ? "ol" : "ul",
    { start: ordered && start !== 1 ? start : null },
    ...items.map(({ lines }) => {
      const children = nested(lines, depth);
      const bare = !loose && children[0]?.nodeName === "P";
      return element("li", {}, ...(bare ? [...children[0].childNodes, ...children.slice(1)] : children));
    }),
  );
}

function tableNode(block) {
  const [head, rule, ...rows] = block.lines.map(cells);
  const sides = rule.map((cell) => (/^:-+:$/.test(cell) ? "center" : /^-+:$/.test(cell) ? "end" : null));
  const row = (name, texts) =>
    element(
      "tr",
      {},
      ...head.map((_, at) =>
        element(name, { class: sides[at], scope: name === "th" ? "col" : null }, ...inline(texts[at] ?? "")),
      ),
    );
  const table = element(
    "table",
    {},
    element("thead", {}, row("th", head)),
    element("tbody", {}, ...rows.map((texts) => row("td", texts))),
  );
  return element("div", { class: "table", tabindex: "0", role: "group", "aria-label": "Table" }, table);
}

function cells(line) {
  const found = [];
  let cell = "";
  const text = line.trim().replace(/^\|/, "");
  for (let at = 0; at < text.length; at += 1) {
    if (text[at] === "\\" && text[at + 1] === "|") {
      cell += "|";
      at += 1;
    } else if (text[at] === "|") {
      found.push(cell.trim());
      cell = "";
    } else {
      cell += text[at];
    }
  }
  if (cell.trim() !== "") found.push(cell.trim());
  return found;
}

// Inside a block

const MARKS = [
  ["***", (children) => element("strong", {}, element("em", {}, ...children))],
  ["**", (children) => element("strong", {}, ...children)],
  ["__", (children) => element("strong", {}, ...children)],
  ["~~", (children) => element("del", {}, ...children)],
  ["*", (children) => element("em", {}, ...children)],
  ["_", (children) => element("em", {}, ...children)],
];
const BARE_LINK = /^https?:\/\/[^\s<>"`]+/i;
const WORD = /[\p{L}\p{N}]/u;

/** The text of a block as nodes. Takes time in proportion to the text, whatever is in it. */
export function inline(text, depth = 0) {
  const nodes = [];
  const brackets = matchingBrackets(text);
  const none = new Set(); // marks that are not closed in the rest of the text
  let plain = "";
  const put = (node, end) => {
    if (plain) nodes.push(plain);
    plain = "";
    nodes.push(node);
    return end;
  };
  let at = 0;
  while (at < text.length) {
    const found =
      escape(text, at) ??
      code(text, at, none) ??
      link(text, at, brackets, depth) ??
      bareLink(text, at) ??
      (depth < DEEPEST ? emphasis(text, at, none, depth) : null);
    if (found === null || found === undefined) {
      plain += text[at];
      at += 1;
    } else if (typeof found.node === "string") {
      plain += found.node;
      at = found.end;
    } else {
      at = put(found.node, found.end);
    }
  }
  if (plain) nodes.push(plain);
  return nodes;
}

function escape(text, at) {
  if (text[at] === "\n") {
    const hard = text.slice(Math.max(0, at - 2), at) === "  ";
    return { node: hard ? element("br") : "\n", end: at + 1 };
  }
  if (text[at] !== "\\" || at + 1 >= text.length) return null;
  if (text[at + 1] === "\n") return { node: element("br"), end: at + 2 };
  return /[!-/:-@[-`{-~]/.test(text[at + 1]) ? { node: text[at + 1], end: at + 2 } : null;
}

function code(text, at, none) {
  if (text[at] !== "`") return null;
  let end = at;
  while (text[end] === "`") end += 1;
  const mark = text.slice(at, end);
  if (!none.has(mark)) {
    for (let close = text.indexOf(mark, end); close >= 0; close = text.indexOf(mark, close)) {
      let after = close;
      while (text[after] === "`") after += 1;
      if (after - close === mark.length) {
        const inner = text.slice(end, close).replaceAll("\n", " ");
        const padded = /^ .* $/.test(inner) && inner.trim() !== "";
        return { node: element("code", {}, padded ? inner.slice(1, -1) : inner), end: after };
      }
      close = after;
    }
    none.add(mark);
  }
  return { node: mark, end };
}

function matchingBrackets(text) {
  const open = [];
  const pairs = new Map();
  for (let at = 0; at < text.length; at += 1) {
    if (text[at] === "\\") at += 1;
    else if (text[at] === "[") open.push(at);
    else if (text[at] === "]" && open.length) pairs.set(open.pop(), at);
  }
  return pairs;
}

function link(text, at, brackets, depth) {
  const image = text[at] === "!" && text[at + 1] === "[";
  const from = image ? at + 1 : at;
  const to = brackets.get(from);
  if (text[from] !== "[" || to === undefined || text[to + 1] !== "(") return null;
  const end = endOfTarget(text, to + 1);
  if (end < 0) return null;
  const target = /^\s*<?(\S*?)>?(?:\s+["'(].*)?\s*$/s.exec(text.slice(to + 2, end));
  if (target === null) return null;
  const label = text.slice(from + 1, to);
  // An image is not fetched: that would tell its server who reads this.
  const children = image || depth >= DEEPEST ? [label || target[1]] : inline(label, depth + 1);
  return { node: linkNode(target[1], children) ?? text.slice(at, end + 1), end: end + 1 };
}

const LONGEST_TARGET = 2000;

function endOfTarget(text, open) {
  let depth = 0;
  for (let at = open; at < text.length && at < open + LONGEST_TARGET; at += 1) {
    if (text[at] === "\\") at += 1;
    else if (text[at] === "(") depth += 1;
    else if (text[at] === ")") {
      depth -= 1;
      if (depth === 0) return at;
    }
  }
  return -1;
}

function bareLink(text, at) {
  const angled = text[at] === "<";
  if (!angled && (text[at] !== "h" || (at > 0 && WORD.test(text[at - 1])))) return null;
  const found = BARE_LINK.exec(text.slice(angled ? at + 1 : at, at + LONGEST_TARGET));
  if (found === null) return null;
  if (angled) {
    const end = at + 1 + found[0].length;
    const node = text[end] === ">" ? linkNode(found[0], [found[0]]) : null;
    return node === null ? null : { node, end: end + 1 };
  }
  let address = found[0].replace(/[.,;:!?'"*_~\]]+$/, "");
  while (address.endsWith(")") && address.split(")").length > address.split("(").length) address = address.slice(0, -1);
  const node = linkNode(address, [address]);
  return node === null ? null : { node, end: at + address.length };
}

function linkNode(address, children) {
  let url;
  try {
    url = new URL(address); // without a base: a model's link to a path would be one to this server
  } catch {
    return null;
  }
  if (!SCHEMES.has(url.protocol)) return null;
  return element("a", { href: url.href, target: "_blank", rel: "noopener noreferrer nofollow" }, ...children);
}

function emphasis(text, at, none, depth) {
  for (const [mark, make] of MARKS) {
    if (!text.startsWith(mark, at) || none.has(mark)) continue;
    const from = at + mark.length;
    if (/^(?:\s|$)/.test(text[from] ?? "")) continue;
    if (mark[0] === "_" && at > 0 && WORD.test(text[at - 1])) continue; // snake_case
    const to = closing(text, mark, from);
    if (to < 0) {
      none.add(mark);
      continue;
    }
    return { node: make(inline(text.slice(from, to), depth + 1)), end: to + mark.length };
  }
  return null;
}

function closing(text, mark, from) {
  for (let at = from; at < text.length; at += 1) {
    if (text[at] === "\\") {
      at += 1;
    } else if (text[at] === "`") {
      let end = at;
      while (text[end] === "`") end += 1;
      const close = text.indexOf(text.slice(at, end), end);
      at = (close < 0 ? end : close + end - at) - 1;
    } else if (text.startsWith(mark, at) && at > from && !/\s/.test(text[at - 1])) {
      const single = mark.length === 1 && (text[at + 1] === mark || text[at - 1] === mark);
      if (single) {
        while (text[at + 1] === mark) at += 1; // the marks of something stronger
        continue;
      }
      if (mark[0] === "_" && WORD.test(text[at + mark.length] ?? "")) continue;
      return at;
    }
  }
  return -1;
}
