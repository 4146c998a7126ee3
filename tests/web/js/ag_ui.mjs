// Front ends on the official AG-UI client, which verifies the order and shape of all that it is sent.
import { HttpAgent } from '@ag-ui/client';
import { given, run, say } from './said.mjs';

let count = 0;

function agent(threadId = given.thread) {
  return new HttpAgent({ url: given.url, threadId, headers: given.headers });
}

function says(one, content) {
  count += 1;
  one.addMessage({ id: `u${count}`, role: 'user', content });
}

// Runs the agent; what a front end knows afterwards.
async function turn(one, parameters = {}) {
  const events = [];
  let outcome = null;
  let failed = null;
  await one
    .runAgent(parameters, {
      onEvent: ({ event }) => void events.push(event),
      onRunFinishedEvent: ({ event, messages, state, agent, input, ...rest }) => void (outcome = { ...rest, result: event.result, usage: event.usage }),
      onRunErrorEvent: ({ event }) => void (failed = { message: event.message, code: event.code }),
    })
    .catch((error) => {
      failed ??= { message: error.message, thrown: true };
    });
  return { events, outcome, failed, messages: one.messages, interrupts: one.pendingInterrupts };
}

await run({
  async turns() {
    const one = agent();
    for (const text of given.say) {
      says(one, text);
      say(await turn(one, given.parameters));
    }
  },

  // The same conversation in a front end that has lost its messages: the record is the server's.
  async second_tab() {
    const [first, second] = [agent(), agent()];
    says(first, 'one');
    say(await turn(first));
    says(second, 'two');
    say(await turn(second));
  },

  async both_at_once() {
    const [first, second] = [agent(), agent()];
    says(first, 'one');
    says(second, 'two');
    say(await Promise.all([turn(first), turn(second)]));
  },

  async client_tools() {
    const one = agent();
    const tools = [{ name: 'where', description: 'Where the user is.', parameters: { type: 'object', properties: {} } }];
    says(one, 'where am I?');
    const first = await turn(one, { tools });
    say(first);
    for (const id of first.outcome.pendingToolCallIds) {
      one.addMessage({ id: `r-${id}`, role: 'tool', toolCallId: id, content: `Oslo for ${id}` });
    }
    if (given.and) says(one, given.and);
    say(await turn(one, { tools }));
  },

  async approval() {
    const one = agent();
    says(one, 'pay');
    const first = await turn(one);
    say(first);
    const resume = first.outcome.interrupts.map((interrupt, index) => ({ interruptId: interrupt.id, ...given.answers[index] }));
    say(await turn(one, { resume }));
    if (given.again) say(await turn(one, { resume }));
  },

  // The conversation waits, and the front end says something else.
  async talks_past() {
    const one = agent();
    says(one, 'pay');
    await turn(one);
    const two = agent();
    says(two, 'never mind');
    say(await turn(two));
  },

  async hangs_up() {
    const one = agent();
    says(one, 'count');
    const running = one.runAgent({}, { onTextMessageContentEvent: () => void one.abortRun() });
    await running.catch(() => {});
    say({ messages: one.messages });
  },

  async stopped_from_outside() {
    const one = agent();
    says(one, 'count');
    const events = [];
    let outcome = null;
    const running = one.runAgent({}, {
      onEvent: ({ event }) => void events.push(event),
      onTextMessageContentEvent: () => say({ began: true }),
      onRunFinishedEvent: (told) => void (outcome = told.outcome),
    });
    await running;
    say({ events, outcome, messages: one.messages });
  },

  async sends_parts() {
    const one = agent();
    const source = { type: 'data', value: 'aGk=', mimeType: 'image/png' };
    says(one, [
      { type: 'text', text: 'what is this?' },
      { type: 'image', source },
      { type: 'document', source: { type: 'url', value: 'https://example.org/a.pdf', mimeType: 'application/pdf' } },
    ]);
    say(await turn(one));
  },
});
