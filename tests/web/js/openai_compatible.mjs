// Programs on a client of OpenAI's format that has nothing in common with OpenAI's own: the AI SDK's.
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { generateObject, generateText, jsonSchema, stepCountIs, streamText, tool } from 'ai';
import { given, run, say } from './said.mjs';

const provider = createOpenAICompatible({
  name: 'ours',
  baseURL: given.url,
  apiKey: given.key ?? 'sk-any',
  includeUsage: true,
});
const model = provider(given.model ?? 'helpdesk');

const where = tool({
  description: 'Where the user is.',
  inputSchema: jsonSchema({ type: 'object', properties: { exact: { type: 'boolean' } }, required: ['exact'] }),
  execute: async ({ exact }) => (exact ? 'Oslo 59.9' : 'Oslo'),
});

function usageOf({ inputTokens, outputTokens }) {
  return { inputTokens, outputTokens };
}

await run({
  async generates() {
    const result = await generateText({ model, prompt: given.prompt, maxRetries: 0, temperature: 0.5, maxOutputTokens: 50 });
    say({ text: result.text, reasoning: result.reasoningText, finish: result.finishReason, usage: usageOf(result.usage) });
  },

  async streams() {
    const errors = [];
    const result = streamText({ model, prompt: given.prompt, maxRetries: 0, onError: ({ error }) => void errors.push(String(error.message ?? error)) });
    const pieces = [];
    const kinds = [];
    for await (const part of result.fullStream) {
      kinds.push(part.type);
      if (part.type === 'text-delta') pieces.push(part.text);
    }
    if (errors.length) return say({ pieces, errors });
    say({ pieces, reasoning: await result.reasoningText, finish: await result.finishReason, usage: usageOf(await result.usage) });
  },

  // The caller's tools run in the caller, step after step.
  async calls_tools() {
    const common = { model, prompt: given.prompt, tools: { where }, stopWhen: stepCountIs(4), maxRetries: 0 };
    const whole = await generateText(common);
    say({ text: whole.text, steps: whole.steps.map((step) => step.toolResults.map((each) => each.output)) });
    const streamed = streamText(common);
    const text = await streamed.text;
    say({ text, steps: (await streamed.steps).map((step) => step.toolResults.map((each) => each.output)) });
  },

  async makes_objects() {
    const schema = jsonSchema({ type: 'object', properties: { name: { type: 'string' } }, required: ['name'], additionalProperties: false });
    const { object } = await generateObject({ model, prompt: given.prompt, schema, maxRetries: 0 });
    say({ object });
  },

  async fails() {
    try {
      await generateText({ model, prompt: given.prompt, maxRetries: 0 });
    } catch (error) {
      say({ status: error.statusCode, message: error.message, retryable: error.isRetryable });
    }
  },
});
