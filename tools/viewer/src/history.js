// history.js: the event log: what happened, in columns, and the state at any event.
//
// Owns: decoding the page's form of a log (written by tools/vmpool/page_log.c), pairing allocations with frees and maps
// with unmaps, the series of the timeline, the way back to the state at event i. A million events are about 100 MB here.
//
// The state at event i: the objects (blocks, mappings) that were there at the keyframe before it, and the events since.
// Keyframes are made here, every KEYFRAME_EVENTS events, as lists of object numbers.
import {Space} from './space.js';
import {LAYERS, State, STATE, blockColumns, mappingColumns, sorted} from './state.js';

export const KIND = {
  alloc: 16, free: 17, oom: 18, use: 19, moved: 20, map: 32, take: 33, retire: 34, unmap: 35, release: 36, spare: 37, share: 38,
  step: 48, mark: 49, snapshot: 50, defragment: 51, trim: 52, limit: 53, suspend: 54, resume: 55,
};
export const KIND_NAMES = Object.fromEntries(Object.entries(KIND).map(([name, number]) => [number, name]));
const FLAG_BEGIN = 2;
const KEYFRAME_EVENTS = 32768;
const REGION = LAYERS.indexOf('region');

// Varints, seven bits a byte, the lowest first; zigzag where a value may be negative. Values stay below 2^53.
class Reader {
  constructor(bytes) {
    this.bytes = bytes;
    this.at = 0;
  }

  next() {
    const {bytes} = this;
    let byte = bytes[this.at++];
    if (byte < 128) return byte;
    let value = byte & 127;
    let scale = 128;
    do {
      byte = bytes[this.at++];
      value += (byte & 127) * scale;
      scale *= 128;
    } while (byte >= 128);
    return value;
  }

  nextSigned() {
    const value = this.next();
    return value % 2 === 0 ? value / 2 : -(value + 1) / 2;
  }
}

// unpack: [length of the head, little-endian][head, JSON][columns, one behind the other]
function unpack(payload) {
  const length = new DataView(payload.buffer, payload.byteOffset).getUint32(0, true);
  const head = JSON.parse(new TextDecoder().decode(payload.subarray(4, 4 + length)));
  const columns = {};
  let at = 4 + length;
  for (const [name, bytes] of head.columns) {
    columns[name] = payload.subarray(at, at + bytes);
    at += bytes;
  }
  return {head, columns};
}

function column(bytes, n, make = (reader) => reader.next()) {
  const result = new Float64Array(n);
  const reader = new Reader(bytes);
  for (let i = 0; i < n; i++) result[i] = make(reader);
  return result;
}

// ObjectTable: blocks or mappings by number, and which of them are there now.
class ObjectTable {
  constructor(capacity) {
    this.n = 0;
    this.off = new Float64Array(capacity);
    this.len = new Float64Array(capacity);
    this.start = new Float64Array(capacity);
    this.end = new Float64Array(capacity).fill(Infinity);
    this.extra = new Float64Array(capacity); // blocks: bytes asked for; mappings: chunk
    this.first = new Uint32Array(capacity); // event that made it, as an index for its other columns
    this.position = new Uint32Array(capacity);
    this.there = new Uint32Array(capacity);
    this.numThere = 0;
    this.byPlace = new Map();
  }

  begin(place, bytes, extra, event) {
    const id = this.n++;
    this.off[id] = place;
    this.len[id] = bytes;
    this.extra[id] = extra;
    this.start[id] = event;
    this.first[id] = event;
    this.position[id] = this.numThere;
    this.there[this.numThere++] = id;
    this.byPlace.set(place, id);
    return id;
  }

  finish(place, event) {
    const id = this.byPlace.get(place);
    if (id === undefined) return -1;
    this.byPlace.delete(place);
    this.end[id] = event;
    const last = this.there[--this.numThere];
    this.there[this.position[id]] = last;
    this.position[last] = this.position[id];
    return id;
  }
}

export class History {
  // open: null for a log in which nothing happened.
  static open(payload) {
    const history = new History(payload);
    return history.n > history.initial ? history : null;
  }

  constructor(payload) {
    const {head, columns} = unpack(payload);
    this.head = head;
    this.n = head.events;
    this.initial = head.initial; // so many events at the start only say what was there before
    this.strings = head.strings;
    this.ranges = head.ranges.map(([base, bytes]) => ({base: BigInt(base), bytes}));
    this.decode(columns);
    this.decodeSamples(columns, head.samples);
  }

  decode(columns) {
    const {n} = this;
    this.kind = columns.kind;
    this.layer = columns.layer;
    this.stream = columns.stream;
    this.flags = columns.flags;
    let now = 0;
    this.time = column(columns.time, n, (reader) => (now += reader.next()) / 1000);
    let place = 0;
    this.place = column(columns.place, n, (reader) => (place += reader.nextSigned()));
    this.bytes = column(columns.bytes, n);
    this.extra = column(columns.extra, n);
    this.value = column(columns.value, n);
    this.tag = column(columns.tag, n);
  }

  decodeSamples(columns, n) {
    let event = 0;
    this.samples = {
      n,
      event: column(columns.sample_event, n, (reader) => (event += reader.next())),
      pending: column(columns.sample_pending, n),
      spare: column(columns.sample_spare, n),
    };
  }

  // settle moves the history's places to those of `space`, which holds all its ranges, and builds the tables.
  settle(space) {
    this.space = space;
    const own = new Space(this.ranges);
    const shifts = own.ranges.map((range) => space.startOf(range.base) - range.start);
    if (shifts.some((shift) => shift !== 0)) {
      const moveAll = (places, which) => {
        for (let i = 0; i < this.n; i++) if (which(this.kind[i])) places[i] += shifts[own.rangeOf(places[i]).index];
      };
      moveAll(this.place, (kind) => (kind >= KIND.alloc && kind <= KIND.unmap && kind !== KIND.oom) || kind === KIND.share);
      moveAll(this.value, (kind) => kind === KIND.take);
    }
    this.pair();
    this.last = null;
  }

  pair() {
    const {n, kind, place, bytes, extra, value} = this;
    const blocks = (this.blocks = new ObjectTable(count(kind, KIND.alloc)));
    const mappings = (this.mappings = new ObjectTable(count(kind, KIND.map) + count(kind, KIND.take) + count(kind, KIND.share)));
    this.chunks = new Map(); // chunk -> mappings of it that aren't retiring: its memory counts once
    this.retired = new Float64Array(mappings.off.length).fill(Infinity);
    this.object = new Int32Array(n).fill(-1);
    this.live = new Float64Array(n);
    this.mapped = new Float64Array(n);
    this.parked = new Float64Array(n);
    this.keyframes = [];
    const cover = new Cover(this.head.granule || 2097152);
    let live = 0;
    let mapped = 0;
    for (let i = 0; i < n; i++) {
      switch (kind[i]) {
        case KIND.alloc:
          this.object[i] = blocks.begin(place[i], bytes[i], bytes[i] - extra[i], i);
          live += bytes[i];
          cover.use(place[i], bytes[i], true);
          break;
        case KIND.free: {
          const id = (this.object[i] = blocks.finish(place[i], i));
          if (id < 0) break;
          live -= blocks.len[id];
          cover.use(place[i], blocks.len[id], false);
          break;
        }
        case KIND.map:
        case KIND.share:
        case KIND.take:
          this.object[i] = mappings.begin(place[i], bytes[i], extra[i], i);
          mapped += this.hold(extra[i], bytes[i]);
          cover.map(place[i], bytes[i]);
          if (kind[i] === KIND.take) mapped -= this.retire(cover, value[i], i);
          break;
        case KIND.retire:
          this.object[i] = mappings.byPlace.get(place[i]) ?? -1;
          mapped -= this.retire(cover, place[i], i);
          break;
        case KIND.unmap: {
          mapped -= this.retire(cover, place[i], i);
          this.object[i] = mappings.finish(place[i], i);
          break;
        }
        default:
          break;
      }
      this.live[i] = live;
      this.mapped[i] = mapped;
      this.parked[i] = cover.parked;
      if ((i + 1) % KEYFRAME_EVENTS === 0) this.keep(i);
    }
  }

  // hold: one more mapping of a chunk; returns the bytes that are mapped by it alone.
  hold(chunk, bytes) {
    const held = this.chunks.get(chunk) ?? 0;
    this.chunks.set(chunk, held + 1);
    return held === 0 ? bytes : 0;
  }

  // retire: the mapping at the place counts no more; returns the bytes that are mapped no more by that.
  retire(cover, place, event) {
    const id = this.mappings.byPlace.get(place);
    if (id === undefined || this.retired[id] !== Infinity) return 0;
    this.retired[id] = event;
    cover.unmap(place);
    const chunk = this.mappings.extra[id];
    const held = this.chunks.get(chunk) - 1;
    if (held > 0) {
      this.chunks.set(chunk, held);
      return 0;
    }
    this.chunks.delete(chunk);
    return this.mappings.len[id];
  }

  keep(event) {
    const {blocks, mappings} = this;
    this.keyframes.push({event, blocks: blocks.there.slice(0, blocks.numThere),
                         mappings: mappings.there.slice(0, mappings.numThere)});
  }

  // pendingAt: as the last sample before it said; null before the first one.
  pendingAt(event) {
    const {samples} = this;
    let low = 0;
    let high = samples.n;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (samples.event[middle] <= event) low = middle + 1;
      else high = middle;
    }
    return low === 0 ? null : samples.pending[low - 1];
  }

  // idsAt: numbers of the objects that are there once events 0..event have happened.
  idsAt(event) {
    const number = Math.floor((event + 1) / KEYFRAME_EVENTS) - 1;
    const keyframe = number >= 0 ? this.keyframes[number] : {event: -1, blocks: [], mappings: []};
    const blocks = new Set(keyframe.blocks);
    const mappings = new Set(keyframe.mappings);
    for (let i = keyframe.event + 1; i <= event; i++) {
      const id = this.object[i];
      if (id < 0) continue;
      const kind = this.kind[i];
      if (kind === KIND.alloc) blocks.add(id);
      else if (kind === KIND.free) blocks.delete(id);
      else if (kind === KIND.map || kind === KIND.take || kind === KIND.share) mappings.add(id);
      else if (kind === KIND.unmap) mappings.delete(id);
    }
    return {blocks, mappings};
  }

  // stateAt: the state once event `event` has happened. The last one is kept.
  stateAt(event) {
    if (this.last && this.last.event === event) return this.last;
    const ids = this.idsAt(event);
    const blocks = this.blockRows(ids.blocks);
    const mappings = this.mappingRows(ids.mappings, event);
    this.last = new State({
      space: this.space,
      kind: 'event',
      event,
      label: `event ${event - this.initial + 1}`,
      blocks: joinPages(sorted(blocks)),
      mappings: sorted(mappings),
      strings: this.strings,
      totals: {},
    });
    this.last.totals = this.totals(this.last, event);
    return this.last;
  }

  blockRows(ids) {
    const rows = blockColumns(ids.size);
    let i = 0;
    for (const id of ids) {
      const event = this.blocks.first[id];
      rows.off[i] = this.blocks.off[id];
      rows.len[i] = this.blocks.len[id];
      rows.req[i] = this.blocks.extra[id];
      rows.layer[i] = this.layer[event] < 4 ? this.layer[event] : 1;
      rows.stream[i] = this.stream[event] === 255 ? -1 : this.stream[event];
      rows.tag[i] = this.tag[event];
      rows.born[i] = event;
      i++;
    }
    return rows;
  }

  mappingRows(ids, event) {
    const rows = mappingColumns(ids.size);
    let i = 0;
    for (const id of ids) {
      rows.off[i] = this.mappings.off[id];
      rows.len[i] = this.mappings.len[id];
      rows.chunk[i] = this.mappings.extra[id];
      rows.state[i] = this.retired[id] <= event ? STATE.retiring : STATE.mapped;
      i++;
    }
    return rows;
  }

  totals(state, event) {
    const {mappings, blocks} = state;
    let requested = 0;
    for (let i = 0; i < blocks.n; i++) requested += blocks.req[i];
    let parked = 0;
    let retiring = 0;
    for (let i = 0; i < mappings.n; i++) {
      if (mappings.state[i] === STATE.retiring) {
        retiring += mappings.len[i];
      } else if (mappings.live[i] === 0) {
        mappings.state[i] = STATE.parked;
        parked += mappings.len[i];
      }
    }
    const pending = this.pendingAt(event);
    return {
      reserved: this.space.bytes, live: event < 0 ? 0 : this.live[event], requested, mapped: event < 0 ? 0 : this.mapped[event], parked, retiring,
      pending: pending === null ? null : Math.min(pending, parked), spare: null, broken: 0, blocks: blocks.n,
      deviceTotal: this.head.device_total || null, deviceFree: null, largestFreeMapped: null,
    };
  }

  // owners: every block that has held the place up to `event`, the newest first, at most `max`.
  owners(place, event, max = 8) {
    const {blocks} = this;
    const found = [];
    for (let id = blocks.n - 1; id >= 0 && found.length < max; id--) {
      if (blocks.start[id] > event || place < blocks.off[id] || place >= blocks.off[id] + blocks.len[id]) continue;
      const made = blocks.first[id];
      found.push({id, off: blocks.off[id], len: blocks.len[id], req: blocks.extra[id], start: blocks.start[id],
                  end: blocks.end[id] <= event ? blocks.end[id] : Infinity, tag: this.tag[made],
                  stream: this.stream[made]});
    }
    return found;
  }

  // lastUnmapped: the last event up to `event` that took away the mapping of the place, or -1.
  lastUnmapped(place, event) {
    const {mappings} = this;
    let last = -1;
    for (let id = 0; id < mappings.n; id++) {
      if (place < mappings.off[id] || place >= mappings.off[id] + mappings.len[id]) continue;
      const end = Math.min(mappings.end[id], this.retired[id]);
      if (end <= event && end > last) last = end;
    }
    return last;
  }

  isBegin(event) {
    return (this.flags[event] & FLAG_BEGIN) !== 0;
  }

  describe(event) {
    const name = KIND_NAMES[this.kind[event]] ?? `kind ${this.kind[event]}`;
    return name === 'defragment' ? `defragment ${this.isBegin(event) ? 'begins' : 'ends'}` : name;
  }
}

// joinPages: committed pages of one region that lie behind one another are one block, as in a snapshot.
function joinPages(rows) {
  const isNext = (i, kept) => rows.layer[i] === REGION && rows.layer[kept] === REGION && rows.tag[i] === rows.tag[kept] && rows.off[i] === rows.off[kept] + rows.len[kept];
  let n = 0;
  for (let i = 0; i < rows.n; i++) {
    if (n > 0 && isNext(i, n - 1)) {
      rows.len[n - 1] += rows.len[i];
      rows.req[n - 1] += rows.req[i];
      continue;
    }
    if (n !== i) for (const [name, column] of Object.entries(rows)) if (name !== 'n') column[n] = column[i];
    n++;
  }
  rows.n = n;
  return rows;
}

function count(kinds, wanted) {
  let n = 0;
  for (let i = 0; i < kinds.length; i++) if (kinds[i] === wanted) n++;
  return n;
}

// Cover: which live blocks touch each mapping, by granule: what is parked, event by event. A block may come before its
// mapping, and stay when the mapping goes (a suspended tag): until then its slots are `bare`.
class Cover {
  constructor(granule) {
    this.granule = granule;
    this.owner = new Map(); // slot -> its mapping: {place, bytes, users}
    this.bare = new Map(); // slot without a mapping -> places of the blocks that touch it
    this.parked = 0;
  }

  slots(place, bytes, each) {
    const last = Math.floor((place + bytes - 1) / this.granule);
    for (let slot = Math.floor(place / this.granule); slot <= last; slot++) slot = each(slot) ?? slot;
  }

  map(place, bytes) {
    const mapping = {place, bytes, users: new Set()};
    this.slots(place, bytes, (slot) => {
      this.owner.set(slot, mapping);
      for (const block of this.bare.get(slot) ?? []) mapping.users.add(block);
      this.bare.delete(slot);
    });
    if (mapping.users.size === 0) this.parked += bytes;
  }

  unmap(place) {
    const mapping = this.owner.get(Math.floor(place / this.granule));
    if (mapping === undefined) return;
    if (mapping.users.size === 0) this.parked -= mapping.bytes;
    this.slots(mapping.place, mapping.bytes, (slot) => {
      this.owner.delete(slot);
      if (mapping.users.size > 0) this.bare.set(slot, new Set(mapping.users));
    });
  }

  use(place, bytes, added) {
    this.slots(place, bytes, (slot) => {
      const mapping = this.owner.get(slot);
      if (mapping === undefined) {
        this.useBare(slot, place, added);
        return undefined;
      }
      const before = mapping.users.size;
      if (added) mapping.users.add(place);
      else mapping.users.delete(place);
      if (before === 0 && added) this.parked -= mapping.bytes;
      if (before > 0 && mapping.users.size === 0) this.parked += mapping.bytes;
      return Math.floor((mapping.place + mapping.bytes - 1) / this.granule);
    });
  }

  useBare(slot, place, added) {
    const users = this.bare.get(slot);
    if (users) {
      if (added) users.add(place);
      else users.delete(place);
    } else if (added) {
      this.bare.set(slot, new Set([place]));
    }
  }
}
