// Front ends on the AI SDK: its chat, as `useChat` runs it, and its default transport.
import {
  AbstractChat,
  DefaultChatTransport,
  lastAssistantMessageIsCompleteWithApprovalResponses,
  lastAssistantMessageIsCompleteWithToolCalls,
} from 'ai';
import { given, run, say, toldToGoOn } from './said.mjs';

// The state that a framework's binding would hold.
class State {
  status = 'ready';
  error = undefined;
  constructor(messages = []) {
    this.messages = messages;
  }
  pushMessage = (message) => void (this.messages = [...this.messages, message]);
  popMessage = () => void (this.messages = this.messages.slice(0, -1));
  replaceMessage = (index, message) => void (this.messages = this.messages.with(index, this.snapshot(message)));
  snapshot = (thing) => structuredClone(thing);
}

class Chat extends AbstractChat {
  constructor({ messages, ...init }) {
    super({
      id: given.chat,
      transport: new DefaultChatTransport({ api: given.url, headers: given.headers }),
      ...init,
      state: new State(messages),
    });
  }
}

// A chat, the data parts that came by, and a promise of its next end.
function chat(init = {}) {
  const data = [];
  const finishes = [];
  const waiting = [];
  const one = new Chat({
    ...init,
    onData: (part) => void data.push(part),
    onFinish: ({ finishReason, isAbort, isDisconnect, isError }) => {
      finishes.push({ finishReason, isAbort, isDisconnect, isError });
      waiting.shift()?.();
    },
  });
  return { one, data, finishes, finished: () => new Promise((resolve) => void waiting.push(resolve)) };
}

function shown({ one, data, finishes }) {
  return { messages: one.messages, status: one.status, error: one.error?.message, data, finishes };
}

await run({
  async turns() {
    const front = chat();
    for (const text of given.say) {
      await front.one.sendMessage({ text });
      say(shown(front));
    }
  },

  async regenerates() {
    const front = chat();
    for (const text of given.say) await front.one.sendMessage({ text });
    say(shown(front));
    await toldToGoOn();
    await front.one.regenerate(given.which == null ? {} : { messageId: front.one.messages[given.which].id });
    say(shown(front));
  },

  async edits() {
    const front = chat();
    for (const text of given.say) await front.one.sendMessage({ text });
    await front.one.sendMessage({ text: given.instead, messageId: front.one.messages[given.which].id });
    say(shown(front));
  },

  async approval() {
    const front = chat({ sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithApprovalResponses });
    await front.one.sendMessage({ text: 'pay' });
    say(shown(front));
    const asked = front.one.lastMessage.parts.filter((part) => part.state === 'approval-requested');
    const finished = front.finished();
    for (const [index, part] of asked.entries()) {
      await front.one.addToolApprovalResponse({ id: part.approval.id, ...given.answers[index] });
    }
    await finished;
    say(shown(front));
  },

  async client_tools() {
    const front = chat({ sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithToolCalls });
    await front.one.sendMessage({ text: 'where am I?' });
    say(shown(front));
    const finished = front.finished();
    for (const part of front.one.lastMessage.parts.filter((each) => each.state === 'input-available')) {
      await front.one.addToolOutput({ tool: 'where', toolCallId: part.toolCallId, ...given.output });
    }
    await finished;
    say(shown(front));
  },

  // The result is not sent by itself, but with what the user says next.
  async result_with_words() {
    const front = chat();
    await front.one.sendMessage({ text: 'where am I?' });
    const [part] = front.one.lastMessage.parts.filter((each) => each.state === 'input-available');
    await front.one.addToolOutput({ tool: 'where', toolCallId: part.toolCallId, output: 'Oslo' });
    await front.one.sendMessage({ text: 'and hurry' });
    say(shown(front));
  },

  // A page that is loaded again while an answer is being written.
  async resumes() {
    const first = chat();
    const begun = first.one.sendMessage({ text: 'count' });
    await toldToGoOn();
    const second = chat({ messages: [{ id: 'u', role: 'user', parts: [{ type: 'text', text: 'count' }] }] });
    const resumed = second.one.resumeStream();
    say({ resuming: true });
    await Promise.all([begun, resumed]);
    say([shown(first), shown(second)]);
  },

  async resumes_nothing() {
    const front = chat();
    await front.one.resumeStream();
    say(shown(front));
  },

  // Loaded again while the turn goes on after an approval.
  async resumes_after_approval() {
    const first = chat({ sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithApprovalResponses });
    await first.one.sendMessage({ text: 'pay' });
    const [asked] = first.one.lastMessage.parts.filter((part) => part.state === 'approval-requested');
    const finished = first.finished();
    await first.one.addToolApprovalResponse({ id: asked.approval.id, ...given.answer });
    await toldToGoOn();
    const second = chat({ messages: [{ id: 'u', role: 'user', parts: [{ type: 'text', text: 'pay' }] }] });
    const resumed = second.one.resumeStream();
    say({ resuming: true });
    await Promise.all([finished, resumed]);
    say([shown(first), shown(second)]);
  },

  async stops() {
    const front = chat();
    const begun = front.one.sendMessage({ text: 'count' });
    await toldToGoOn();
    await front.one.stop();
    await begun;
    say(shown(front));
  },

  async is_stopped() {
    const front = chat();
    const begun = front.one.sendMessage({ text: 'count' });
    await toldToGoOn();
    await fetch(`${given.url}/${encodeURIComponent(given.chat)}/stop`, { method: 'POST' });
    await begun;
    say(shown(front));
  },

  async sends_files() {
    const front = chat();
    const files = [{ type: 'file', mediaType: 'image/png', url: 'data:image/png;base64,aGk=', filename: 'dot.png' }];
    await front.one.sendMessage({ text: 'what is this?', files });
    say(shown(front));
  },

  // What an app does that sends the last message alone.
  async sends_only_the_last() {
    const front = chat({
      transport: new DefaultChatTransport({
        api: given.url,
        prepareSendMessagesRequest: ({ id, messages }) => ({ body: { id, message: messages.at(-1) } }),
      }),
    });
    for (const text of given.say) await front.one.sendMessage({ text });
    say(shown(front));
  },
});
