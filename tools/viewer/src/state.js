// state.js: what a pool looks like at one instant, in columns: live blocks, mappings, areas of the layers.
//
// Owns: reading a snapshot's JSON into columns, and the figures that follow from them. Both the snapshot and a moment of
// the event log (history.js) become a State, so every view draws either.
import {lastAtOrBefore} from './util.js';

// Of a mapping. "pending" is this page's: parked, but work of some stream may still touch it.
export const STATES = ['mapped', 'parked', 'retiring', 'in_transit', 'broken', 'pending'];
export const STATE = {mapped: 0, parked: 1, retiring: 2, in_transit: 3, broken: 4, pending: 5};
export const isIdle = (state) => state === STATE.parked || state === STATE.pending;
export const LAYERS = ['slab', 'mid', 'buddy', 'region'];

export function blockColumns(n) {
  return {
    n,
    off: new Float64Array(n),
    len: new Float64Array(n),
    req: new Float64Array(n),
    layer: new Uint8Array(n),
    stream: new Int16Array(n).fill(-1),
    tag: new Uint32Array(n),
    name: new Uint32Array(n),
    born: new Float64Array(n).fill(-1), // event of the log, -1: not known
  };
}

export function mappingColumns(n) {
  return {
    n,
    off: new Float64Array(n),
    len: new Float64Array(n),
    state: new Uint8Array(n),
    chunk: new Float64Array(n),
    live: new Float64Array(n), // blocks that touch it
    liveBytes: new Float64Array(n),
    streams: new Array(n).fill(null), // the fence's mask, as text; null: not known
  };
}

// sorted returns the columns in rising order of `off`.
export function sorted(columns) {
  const {n, off} = columns;
  let inOrder = true;
  for (let i = 1; i < n && inOrder; i++) inOrder = off[i - 1] <= off[i];
  if (inOrder) return columns;
  const order = new Uint32Array(n);
  for (let i = 0; i < n; i++) order[i] = i;
  order.sort((a, b) => off[a] - off[b]);
  const result = {n};
  for (const [name, column] of Object.entries(columns)) {
    if (name === 'n') continue;
    const copy = Array.isArray(column) ? new Array(n) : new column.constructor(n);
    for (let i = 0; i < n; i++) copy[i] = column[order[i]];
    result[name] = copy;
  }
  return result;
}

export class State {
  constructor(parts) {
    Object.assign(this, {areas: [], spans: [], spares: [], pins: [], regions: [], strings: [''], ...parts});
    touch(this.mappings, this.blocks);
  }

  // blockAt: the index of the live block that holds the place, or -1.
  blockAt(place) {
    const {off, len, n} = this.blocks;
    const i = lastAtOrBefore(off, n, place);
    return i >= 0 && place < off[i] + len[i] ? i : -1;
  }

  // mappingAt: the newest mapping of the place that isn't retiring, else one that is, or -1.
  mappingAt(place) {
    const {off, len, n} = this.mappings;
    const i = lastAtOrBefore(off, n, place);
    return i >= 0 && place < off[i] + len[i] ? i : -1;
  }

  tagText(index) {
    return this.strings[index] ?? '';
  }

  // labelOf: what a block is called: its own name, else its tag's.
  labelOf(i) {
    return this.tagText(this.blocks.name[i]) || this.tagText(this.blocks.tag[i]);
  }

  // live blocks by layer: {blocks, bytes, requested}
  byLayer() {
    const result = LAYERS.map((name) => ({name, blocks: 0, bytes: 0, requested: 0}));
    const {n, len, req, layer} = this.blocks;
    for (let i = 0; i < n; i++) {
      const one = result[layer[i]];
      one.blocks++;
      one.bytes += len[i];
      one.requested += req[i];
    }
    return result;
  }
}

// touch fills in how many live blocks touch each mapping, and with how many bytes. Both lists ascend.
function touch(mappings, blocks) {
  const {off, len, live, liveBytes, n} = mappings;
  let first = 0;
  for (let m = 0; m < n; m++) {
    const end = off[m] + len[m];
    let count = 0;
    let bytes = 0;
    while (first < blocks.n && blocks.off[first] + blocks.len[first] <= off[m]) first++;
    for (let b = first; b < blocks.n && blocks.off[b] < end; b++) {
      count++;
      bytes += Math.min(end, blocks.off[b] + blocks.len[b]) - Math.max(off[m], blocks.off[b]);
    }
    live[m] = count;
    liveBytes[m] = bytes;
  }
}

const size = (value) => (Number.isFinite(value) && value >= 0 ? value : 0);
const list = (value) => (Array.isArray(value) ? value : []);

// rangesOf: the ranges of a snapshot's JSON.
export function rangesOf(document) {
  return list(document.ranges).map((range) => ({base: BigInt(range.base), bytes: size(range.bytes)}));
}

// stateOfSnapshot reads a snapshot's JSON, which vmpool has checked; `space` holds its ranges.
export function stateOfSnapshot(document, space) {
  const ranges = list(document.ranges).map((range) => ({range, start: space.startOf(BigInt(range.base))}));
  const strings = ['', ...list(document.tags).slice(1).map(String)];
  const numTags = strings.length;
  const names = new Map();
  const texts = {number: (text) => {
    if (!names.has(text)) names.set(text, strings.push(text) - 1);
    return names.get(text);
  }};
  const blocks = blockColumns(ranges.reduce((sum, {range}) => sum + list(range.blocks).length, 0));
  const mappings = mappingColumns(ranges.reduce((sum, {range}) => sum + list(range.chunks).length, 0));
  const areas = [];
  const spans = [];
  let b = 0;
  let m = 0;
  for (const {range, start} of ranges) {
    for (const row of list(range.blocks)) readBlock(blocks, b++, row, start, numTags, texts);
    for (const row of list(range.chunks)) readMapping(mappings, m++, row, start);
    for (const row of list(range.spans)) {
      spans.push({off: start + size(row[0]), len: size(row[1]), object: size(row[2]), objects: size(row[3]), used: size(row[4])});
    }
    for (const row of list(range.areas)) {
      areas.push({off: start + size(row[0]), len: size(row[1]), layer: String(row[2]), what: String(row[3]),
                  streams: String(row[4] ?? '0x0')});
    }
  }
  spans.sort((x, y) => x.off - y.off);
  areas.sort((x, y) => x.off - y.off || y.len - x.len);
  const s = document.stats ?? {};
  return new State({
    space,
    kind: 'snapshot',
    label: 'snapshot',
    blocks: sorted(blocks),
    mappings: sorted(mappings),
    areas,
    spans,
    strings,
    spares: list(document.spares).map((row) => ({chunk: size(row[0]), bytes: size(row[1])})),
    pins: list(document.pins),
    regions: list(document.regions),
    totals: {
      reserved: size(s.reserved_va), mapped: size(s.mapped), live: size(s.live), requested: size(s.requested),
      parked: size(s.parked), pending: Math.min(size(s.pending), size(s.parked)), spare: size(s.spare),
      suspended: size(s.suspended ?? 0), retiring: size(s.retiring), broken: size(s.broken), blocks: size(s.blocks), deviceFree: size(s.device_free),
      deviceTotal: size(s.device_total), largestFreeMapped: size(s.largest_free_mapped),
    },
  });
}

// A block's row: [offset, bytes, requested, layer, stream or null, recorded streams, tag, name]; from the stream on since
// 1.1, a name where the block has one.
function readBlock(blocks, i, row, start, numTags, strings) {
  blocks.off[i] = start + size(row[0]);
  blocks.len[i] = size(row[1]);
  blocks.req[i] = size(row[2]);
  blocks.layer[i] = Math.max(0, LAYERS.indexOf(row[3]));
  if (Number.isInteger(row[4])) blocks.stream[i] = row[4];
  if (Number.isInteger(row[6]) && row[6] > 0 && row[6] < numTags) blocks.tag[i] = row[6];
  if (typeof row[7] === 'string' && row[7] !== '') blocks.name[i] = strings.number(row[7]);
}

function readMapping(mappings, i, row, start) {
  mappings.off[i] = start + size(row[0]);
  mappings.len[i] = size(row[1]);
  mappings.state[i] = Math.max(0, STATES.indexOf(row[2]));
  mappings.chunk[i] = size(row[3]);
  mappings.streams[i] = String(row[5] ?? '0x0');
  if (mappings.state[i] === STATE.parked && mappings.streams[i] !== '0x0') mappings.state[i] = STATE.pending;
}
