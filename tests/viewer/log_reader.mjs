// log_reader.mjs: an event log read from its file by the format's description (pool/log_format.h) alone, to compare with
// what the page makes of it. Slow and simple.
import {readFileSync} from 'node:fs';

const KEYFRAME = 1;
const SHOWN = (kind) => (kind >= 16 && kind <= 20) || (kind >= 32 && kind <= 36) || kind === 38 || (kind >= 48 && kind <= 55);

// readLog: {events: [{kind, address, bytes, extra, value, sequence}], initial: [...]}; `initial` says what was there
// before the first event.
export function readLog(path) {
  const file = readFileSync(path);
  if (file.toString('latin1', 0, 8) !== 'VMPLOG1\n') throw new Error('no log');
  const written = Number(file.readBigUInt64LE(32));
  const log = {events: [], initial: []};
  let states = 0; // of the first keyframe, still to come
  let seen = false;
  for (let s = 0; s < written && 4096 + 64 * (s + 1) <= file.length; s++) {
    const at = 4096 + 64 * s;
    const kind = file[at];
    const record = {kind, layer: file[at + 1], sequence: s, state: (file[at + 3] & 1) !== 0, address: file.readBigUInt64LE(at + 24), bytes: Number(file.readBigUInt64LE(at + 32)),
                    extra: Number(file.readBigUInt64LE(at + 40)), value: file.readBigUInt64LE(at + 48)};
    if (kind === KEYFRAME && !seen) {
      seen = true;
      states = record.extra;
    } else if (states > 0) {
      states--;
      log.initial.push(record);
    } else if (!record.state && SHOWN(kind)) {
      log.events.push(record);
    }
  }
  return log;
}

// sumsAfter: live and mapped bytes and the number of blocks once the first `count` events have happened.
export function sumsAfter(log, count) {
  const blocks = new Map();
  const mapped = new Map();
  const pages = new Set();
  for (const one of [...log.initial, ...log.events.slice(0, count)]) {
    if (one.kind === 16) blocks.set(one.address, one.bytes);
    if (one.kind === 16 && one.layer === 3) pages.add(one.address);
    if (one.kind === 17) pages.delete(one.address);
    if (one.kind === 17) blocks.delete(one.address);
    if (one.kind === 32 || one.kind === 33 || one.kind === 38) mapped.set(one.address, one);
    if (one.kind === 33) mapped.delete(one.value);
    if (one.kind === 34 || one.kind === 35) mapped.delete(one.address);
  }
  const sum = (map) => [...map.values()].reduce((total, bytes) => total + bytes, 0);
  const chunks = new Map([...mapped.values()].map((one) => [one.extra, one.bytes])); // the memory of a shared one counts once
  return {live: sum(blocks), blocks: blocks.size, pages: pages.size, mapped: sum(chunks)};
}
