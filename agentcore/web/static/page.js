// The page: the list, the open conversation and the message box, put together.

import { Announcer } from "./announcer.js";
import { Api } from "./api.js";
import { ConversationView } from "./conversation.js";
import { addressOf, ConversationList, idIn } from "./conversations.js";

const NEAR = 80; // pixels from the end that still count as being there

const $ = (id) => document.getElementById(id);
const narrow = window.matchMedia("(max-width: 45rem)");
const message = $("message");
const scroll = $("scroll");
const api = new Api("api/", document.body.dataset.prefix);
const announcer = new Announcer($("spoken"));

let unsaved = ""; // the id of a new conversation, until it is in the list

const conversation = new ConversationView({
  api,
  log: $("log"),
  announcer,
  changed,
  handBack(text) {
    if (!message.value) message.value = text;
    grow();
    message.focus();
  },
});

const list = new ConversationList({
  list: $("list"),
  more: $("more"),
  status: $("list-status"),
  get: (after) => api.list(after),
  remove: confirmRemoval,
});

// What is open

let shownId = null;
let shownRunning = false;
let shownWaiting = null;

function changed() {
  const { id, isRunning, waiting } = conversation;
  const other = id !== shownId;
  $("send").hidden = isRunning;
  $("stop").hidden = !isRunning;
  $("empty").hidden = !conversation.isEmpty || $("log").hasAttribute("aria-busy");
  list.mark(id);
  name();
  if (!isRunning && shownRunning && !other) {
    refresh();
    if (document.activeElement === $("stop") || document.activeElement === document.body) message.focus();
  }
  if (waiting && waiting !== shownWaiting && !message.value) waiting.focus();
  if (!waiting && shownWaiting && !shownWaiting.isConnected && document.activeElement === document.body) message.focus();
  [shownId, shownRunning, shownWaiting] = [id, isRunning, waiting];
}

function name() {
  const { id } = conversation;
  $("heading").textContent = list.titleOf(id) || conversation.title || (id === unsaved ? "New conversation" : id);
}

async function refresh() {
  await list.refresh();
  if (list.titleOf(unsaved)) unsaved = "";
  name();
}

function openAddressed() {
  const id = idIn(location.hash);
  closeDrawer();
  if (id && id === conversation.id) return;
  pinned = true;
  if (id) conversation.open(id);
  else begin();
  if (!narrow.matches) message.focus();
}

function begin() {
  unsaved = api.newId();
  conversation.begin(unsaved);
}

function say() {
  const text = message.value.trim();
  if (!text) return;
  if (conversation.isRunning) {
    announcer.say("An answer is running. Wait for it, or stop it first.");
    return;
  }
  message.value = "";
  grow();
  pinned = true;
  // Now that there is something to come back to.
  if (idIn(location.hash) !== conversation.id) history.pushState(null, "", addressOf(conversation.id));
  conversation.say(text);
}

function stop() {
  if (conversation.isRunning) conversation.stop();
}

async function confirmRemoval(id, title) {
  $("doomed").textContent = `“${title}”`;
  const dialog = $("confirm");
  dialog.returnValue = "cancel";
  dialog.showModal();
  await new Promise((closed) => dialog.addEventListener("close", closed, { once: true }));
  if (dialog.returnValue !== "delete") return;
  try {
    await api.remove(id);
  } catch (error) {
    $("list-status").textContent = `It was not deleted: ${error.message}`;
    announcer.say($("list-status").textContent);
    return;
  }
  announcer.say("Deleted.");
  if (!list.forget(id)) $("new").focus();
  if (id === conversation.id) {
    history.replaceState(null, "", location.pathname + location.search);
    begin();
  }
}

// The message box

function grow() {
  message.style.height = "auto";
  message.style.height = `${message.scrollHeight + message.offsetHeight - message.clientHeight}px`;
}

message.addEventListener("input", grow);
message.addEventListener("keydown", (event) => {
  // Enter may also take a word that an input method offers.
  if (event.key !== "Enter" || event.shiftKey || event.isComposing || event.keyCode === 229) return;
  event.preventDefault();
  say();
});
$("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  say();
});
$("stop").addEventListener("click", stop);
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || event.defaultPrevented || event.isComposing || $("confirm").open) return;
  if (drawerIsOpen()) closeDrawer({ refocus: true });
  else stop();
});
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the address names the conversation
  message.focus();
});

// The list on a narrow screen

function drawerIsOpen() {
  return $("drawer").getAttribute("aria-expanded") === "true";
}

function openDrawer() {
  $("drawer").setAttribute("aria-expanded", "true");
  $("veil").hidden = false;
  document.querySelector("main").inert = true;
  (document.querySelector('#list a[aria-current="page"]') ?? document.querySelector("#list a"))?.focus();
}

function closeDrawer({ refocus = false } = {}) {
  if (!drawerIsOpen()) return;
  $("drawer").setAttribute("aria-expanded", "false");
  $("veil").hidden = true;
  document.querySelector("main").inert = false;
  if (refocus) $("drawer").focus();
}

$("drawer").addEventListener("click", () => (drawerIsOpen() ? closeDrawer() : openDrawer()));
$("veil").addEventListener("click", () => closeDrawer());
narrow.addEventListener("change", () => closeDrawer());
// The open conversation is in the list too: choosing it changes no address.
$("list").addEventListener("click", (event) => {
  if (event.target.closest("a")) closeDrawer();
});

$("new").addEventListener("click", () => {
  closeDrawer();
  if (idIn(location.hash)) history.pushState(null, "", location.pathname + location.search);
  if (!conversation.isEmpty || conversation.id !== unsaved) begin();
  message.focus();
});

// The end of the conversation stays in view, unless the reader has scrolled away from it.

let pinned = true;
let scrolledByUs = 0;

function toTheEnd() {
  scrolledByUs = scroll.scrollHeight - scroll.clientHeight;
  scroll.scrollTop = scrolledByUs;
}

function lookWhere() {
  const near = scroll.scrollHeight - scroll.clientHeight - scroll.scrollTop < NEAR;
  if (near) pinned = true;
  else if (scroll.scrollTop < scrolledByUs - 1) pinned = false; // content that grows is not the reader scrolling
  $("newest").hidden = pinned || near;
}

scroll.addEventListener("scroll", lookWhere);
// What the reader unfolds stays where they look.
$("log").addEventListener("click", (event) => {
  if (event.target.closest("summary")) pinned = false;
});
$("newest").addEventListener("click", () => {
  pinned = true;
  toTheEnd();
  message.focus();
});
new ResizeObserver(() => {
  if (pinned) toTheEnd();
  lookWhere();
}).observe($("log"));

window.addEventListener("popstate", openAddressed);
window.addEventListener("hashchange", openAddressed);
refresh();
openAddressed();
