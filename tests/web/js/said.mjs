// How a program talks with the test that runs it: values as lines of JSON, and a line to go on.
import { createInterface } from 'node:readline';

export const given = JSON.parse(process.argv[2]);

export function say(value) {
  process.stdout.write(`${JSON.stringify(value)}\n`);
}

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();

export async function toldToGoOn() {
  await lines.next();
}

export async function run(scenarios) {
  await scenarios[given.scenario]();
  process.exit(0);
}
