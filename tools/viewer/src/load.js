// load.js: from the page's data blocks to snapshots and a history.
//
// The page carries each as <script type="application/octet-stream" id="..."> with base64 of raw deflate; such a block is
// never run. Nothing is fetched.
import {History} from './history.js';
import {Space} from './space.js';
import {rangesOf, stateOfSnapshot} from './state.js';

function base64Bytes(text) {
  const clean = text.trim();
  const padding = clean.endsWith('==') ? 2 : clean.endsWith('=') ? 1 : 0;
  const bytes = new Uint8Array((clean.length / 4) * 3 - padding);
  const STEP = 1 << 20; // characters; a multiple of four
  let at = 0;
  for (let i = 0; i < clean.length; i += STEP) {
    const piece = atob(clean.slice(i, i + STEP));
    for (let k = 0; k < piece.length; k++) bytes[at++] = piece.charCodeAt(k);
  }
  return bytes;
}

async function inflate(bytes, size) {
  const result = new Uint8Array(size);
  const reader = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('deflate-raw')).getReader();
  let at = 0;
  for (;;) {
    const {done, value} = await reader.read();
    if (done) break;
    result.set(value, at);
    at += value.length;
  }
  if (at !== size) throw new Error(`the page is cut: ${at} of ${size} bytes`);
  return result;
}

async function blockBytes(id) {
  const element = document.getElementById(id);
  if (!element) return null;
  const bytes = base64Bytes(element.textContent);
  const size = Number(element.dataset.bytes);
  element.textContent = ''; // the text is as large as the log
  return inflate(bytes, size);
}

export function parseSnapshot(text) {
  const document = JSON.parse(text);
  if (document?.schema?.name !== 'vmpool-snapshot') throw new Error('this is JSON, but no vmpool snapshot');
  if (!String(document.schema.version).startsWith('1.')) {
    throw new Error(`a snapshot of version ${document.schema.version}; this page reads 1.x`);
  }
  return document;
}

// loadPage: {documents: [snapshot JSON], names, history, space}
export async function loadPage() {
  const documents = [];
  const names = [];
  for (const id of ['snapshot-a', 'snapshot-b']) {
    const bytes = await blockBytes(id);
    if (!bytes) continue;
    documents.push(parseSnapshot(new TextDecoder().decode(bytes)));
    names.push(document.getElementById(id).dataset.name ?? id);
  }
  const log = await blockBytes('log');
  const history = log ? History.open(log) : null;
  if (!history && documents.length === 0) throw new Error('it holds neither a snapshot nor an event');
  let space = new Space(history ? history.ranges : []);
  for (const one of documents) space = Space.union(space.ranges, rangesOf(one));
  if (history) history.settle(space);
  return {
    documents, names, history, space,
    states: documents.map((one, i) => Object.assign(stateOfSnapshot(one, space), {label: names[i]})),
  };
}
