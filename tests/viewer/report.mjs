// report.mjs: checks with names; the test.xml that Bazel and .ci/tally.py read.
import {writeFileSync} from 'node:fs';

const cases = [];
const escape = (text) => String(text).replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`).replace(/[^\x20-\x7e\n]/g, '?');

export async function check(name, body) {
  const began = Date.now();
  let failure = null;
  try {
    const said = await body();
    console.log(`ok      ${name}${said ? `: ${said}` : ''}`);
  } catch (error) {
    failure = error.stack ?? String(error);
    console.log(`FAILED  ${name}: ${failure}`);
  }
  cases.push({name, failure, seconds: (Date.now() - began) / 1000});
}

export function skip(name, reason) {
  console.log(`SKIPPED ${name}: ${reason}`);
  cases.push({name, skipped: reason, seconds: 0});
}

export function equal(found, expected, what) {
  if (found !== expected) throw new Error(`${what}: ${found}, expected ${expected}`);
}

export function yes(condition, what) {
  if (!condition) throw new Error(what);
}

// finish writes the report and returns the exit status.
export function finish() {
  const failed = cases.filter((one) => one.failure).length;
  const rows = cases.map(({name, failure, skipped, seconds}) => `<testcase classname="Viewer" name="${escape(name)}" time="${seconds}">${
    failure ? `<failure message="${escape(failure)}"/>` : ''}${skipped ? `<skipped message="${escape(skipped)}"/>` : ''}</testcase>`);
  if (process.env.XML_OUTPUT_FILE) {
    writeFileSync(process.env.XML_OUTPUT_FILE, `<testsuites><testsuite name="Viewer" tests="${cases.length}" failures="${failed}">\n${rows.join('\n')}\n</testsuite></testsuites>\n`);
  }
  console.log(`${cases.length - failed} of ${cases.length} passed`);
  return failed > 0 ? 1 : 0;
}
