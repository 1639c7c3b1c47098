// ledger.js: the first screen: what the device's memory is used for, how much of the addresses is mapped, and whether a
// block of a given size fits, and at what cost.
//
// Every figure that stands here carries data-figure and data-bytes, so that it can be compared with the snapshot.
import {isIdle} from './state.js';
import {bytesText, countText, exactBytes, h, parseSize, replace, shareText} from './util.js';

const minus = (a, b) => Math.max(0, (a ?? 0) - (b ?? 0));

// parts: what the device's bytes are, so that they sum up to the device.
export function parts(totals) {
  const pending = totals.pending ?? 0;
  const live = minus(totals.live, totals.suspended); // what has memory
  const gaps = minus(minus(totals.mapped, live), totals.parked);
  const result = [
    {key: 'live', bytes: live, what: 'handed out to callers'},
    {key: 'gaps', bytes: gaps, what: 'free, inside chunks that live blocks touch'},
    {key: 'pending', bytes: pending, what: 'freed; GPU work may still touch it'},
    {key: 'parked', bytes: minus(totals.parked, pending), what: 'mapped, no live block: free to be taken'},
  ];
  if (totals.spare != null) result.push({key: 'spare', bytes: totals.spare, what: 'chunks mapped nowhere, kept for reuse'});
  if (totals.deviceTotal && totals.deviceFree != null) {
    const others = minus(minus(minus(totals.deviceTotal, totals.deviceFree), totals.mapped), totals.spare);
    result.push({key: 'others', bytes: others, what: 'other pools, processes and the driver'});
    result.push({key: 'free', bytes: totals.deviceFree, what: 'of the device, held by nobody'});
  }
  return result;
}

export class LedgerView {
  constructor(app) {
    this.app = app;
    this.id = 'ledger';
    this.title = 'Ledger';
    this.size = '64 MiB';
    this.element = h('section.view', {id: 'view-ledger'});
  }

  show() {
    this.stateChanged();
  }

  stateChanged() {
    const {totals} = this.app.state;
    replace(this.element, this.failure(), this.device(totals), h('div.two', this.addresses(totals), this.fits(totals)), h('div.two', this.tags(), this.regions()), this.figures());
  }

  device(totals) {
    const rows = parts(totals);
    const whole = totals.deviceTotal && totals.deviceFree != null ? totals.deviceTotal : rows.reduce((s, r) => s + r.bytes, 0);
    const title = totals.deviceFree != null ? 'Device memory' : 'The pool’s memory';
    return h('div.card', {id: 'ledger-device'},
      h('div.head', h('h2', title), h('span.big', {'data-figure': 'device_total', 'data-bytes': whole}, bytesText(whole))),
      stackedBar(rows, whole),
      h('table.parts', h('tbody', rows.map((row) => h('tr', {class: row.bytes ? '' : 'none'},
        h('td', h(`i.swatch.fill-${row.key}`)), h('th', {scope: 'row'}, row.key),
        h('td.number', {'data-figure': row.key, 'data-bytes': row.bytes, title: exactBytes(row.bytes)}, bytesText(row.bytes)),
        h('td.number.quiet', shareText(row.bytes, whole)), h('td.quiet', row.what))))));
  }

  // failure: the last allocation that failed for want of memory.
  failure() {
    const {page, state} = this.app;
    const failure = page.documents[page.states.indexOf(state)]?.failure;
    if (!failure) return null;
    return h('div.card.failure', {id: 'failure'}, h('div.head', h('h2', 'Out of memory'), h('span.quiet', 'the last allocation that failed'), h('span.big', bytesText(failure.requested))),
      h('p', String(failure.message)),
      h('dl.facts', h('dt', 'asked for'), h('dd', exactBytes(failure.requested)), h('dt', 'largest block that could be had'), h('dd', bytesText(failure.largest)),
        h('dt', 'device free then'), h('dd', bytesText(failure.device_free)), h('dt', 'layer, stream'), h('dd', `${failure.layer}, ${failure.stream}`)));
  }

  addresses(totals) {
    const share = totals.reserved ? totals.mapped / totals.reserved : 0;
    return h('div.card', h('div.head', h('h2', 'Addresses'), h('span.big', {'data-figure': 'reserved_va', 'data-bytes': totals.reserved}, bytesText(totals.reserved))),
      h('div.lens', {title: 'reserved addresses, to scale; below, the mapped ones'},
        h('div.stack.thin', h('i.fill-live', {style: {width: `max(2px, ${100 * share}%)`}})),
        lens(share),
        stackedBar(parts(totals).filter((row) => ['live', 'gaps', 'pending', 'parked'].includes(row.key)), totals.mapped)),
      h('dl.facts',
        fact('mapped', 'mapped', totals.mapped), fact('of the reserved', null, null, shareText(totals.mapped, totals.reserved)),
        fact('live of the mapped', null, null, shareText(minus(totals.live, totals.suspended), totals.mapped)),
        fact('ranges', null, null, countText(this.app.state.space.ranges.length)),
        totals.largestFreeMapped != null && fact('largest block without a driver call', 'largest_free_mapped', totals.largestFreeMapped),
        totals.suspended > 0 && fact('live, but suspended: without memory', 'suspended', totals.suspended),
        totals.retiring > 0 && fact('retiring addresses', 'retiring', totals.retiring),
        totals.broken > 0 && fact('BROKEN', 'broken', totals.broken)),
      h('p.quiet', 'Reserved addresses cost nothing: only what is mapped is memory.'));
  }

  fits(totals) {
    const input = h('input', {id: 'fit-size', value: this.size, 'aria-label': 'size of the block', spellcheck: 'false',
      oninput: () => {
        this.size = input.value;
        answer();
      }});
    const out = h('div.answer', {id: 'fit-answer', 'aria-live': 'polite'});
    const answer = () => replace(out, fitAnswer(this.app, parseSize(this.size)));
    answer();
    const room = roomOf(this.app);
    const idle = totals.parked + (totals.spare ?? 0);
    return h('div.card', h('div.head', h('h2', 'Will it fit?'), h('span.grow'), h('label.fit', 'a block of ', input)), out,
      h('h3', 'The largest block that can be had'),
      h('dl.facts', totals.largestFreeMapped != null && fact('without a driver call', null, totals.largestFreeMapped),
        fact('by remapping idle chunks', null, Math.max(idle, totals.largestFreeMapped ?? 0)), room !== null && fact('with new memory as well', null, idle + room)),
      totals.largestFreeMapped == null && h('p.quiet', 'Free lists are known at the snapshot only: go to its event for the exact answer.'));
  }

  // tags: what is live of each, and where its memory is.
  tags() {
    const {page, state} = this.app;
    const document = page.documents[page.states.indexOf(state)];
    const sums = Array.isArray(document?.tag_sums) ? [...document.tag_sums].sort((a, b) => b.live - a.live) : [];
    return sums.length > 0 && h('div.card', {id: 'tags'}, h('div.head', h('h2', 'Tags'), h('span.quiet', `${countText(sums.length)} tags`)),
      h('table.data', h('thead', h('tr', h('th', 'tag'), h('th.number', 'blocks'), h('th.number', 'live'), h('th', 'memory'))),
        h('tbody', sums.slice(0, 20).map((one) => h('tr', h('td', String(document.tags?.[one.tag] ?? one.tag)), h('td.number', countText(one.blocks)),
          h('td.number', {'data-tag': one.tag, 'data-bytes': one.live}, bytesText(one.live)), h('td', one.suspendable ? String(one.state) : 'resident'))))),
      sums.length > 20 && h('p.quiet', `and ${countText(sums.length - 20)} more`));
  }

  regions() {
    const {regions} = this.app.state;
    return regions.length > 0 && h('div.card', {id: 'regions'}, h('div.head', h('h2', 'Regions'), h('span.quiet', 'fixed addresses, backed page by page')),
      h('table.data', h('thead', h('tr', h('th', 'name'), h('th', 'base'), h('th.number', 'addresses'), h('th.number', 'page'), h('th.number', 'committed'), h('th.wide', ''))),
        h('tbody', regions.slice(0, 200).map((one) => h('tr', h('td', String(one.name)), h('td.mono', String(one.base)), h('td.number', bytesText(one.bytes)), h('td.number', bytesText(one.page_bytes)),
          h('td.number', bytesText(one.committed)), h('td.wide', h('span.track', h('i.fill-region', {style: {width: `${(100 * one.committed) / Math.max(1, one.bytes)}%`}})), ' ', shareText(one.committed, one.bytes)))))),
      regions.length > 200 && h('p.quiet', `and ${countText(regions.length - 200)} more`));
  }

  figures() {
    const {page, state} = this.app;
    const document = state.kind === 'snapshot' ? page.documents[page.states.indexOf(state)] : null;
    if (!document) return h('p.quiet', `All statistics are known at the snapshot only. This is ${state.label}.`);
    const stats = Object.entries(document.stats ?? {});
    return h('details.card', {open: true}, h('summary', h('h2', 'All statistics'), h('span.quiet', `${stats.length} fields of vmp_pool_stats_data`)),
      h('div.stats', stats.map(([name, value]) => h('div', h('span', name),
        h('b', {'data-stat': name, 'data-value': value === null ? 'null' : value, title: value === null ? 'no limit' : countText(value)}, statText(name, value))))));
  }
}

const COUNTS = new Set(['allocs', 'frees', 'failed_allocs', 'blocks', 'chunks', 'chunks_created', 'chunks_released', 'takes',
  'takes_resized', 'stream_waits', 'unfinished_wait_allocs', 'host_waits', 'steps']);

function statText(name, value) {
  if (value === null) return 'none';
  if (typeof value !== 'number') return String(value);
  return COUNTS.has(name) || /(_calls|_allocs|_waits|_count|^num_|_us|_ns|_runs)$/.test(name) ? countText(value) : bytesText(value);
}

const fact = (name, figure, bytes, text) => [h('dt', name),
  h('dd', {'data-figure': figure, 'data-bytes': bytes, title: bytes == null ? null : exactBytes(bytes)}, text ?? bytesText(bytes))];

// stackedBar: shares of a whole; a part that exists shows, however small it is.
export function stackedBar(rows, whole) {
  return h('div.stack', rows.filter((row) => row.bytes > 0).map((row) =>
    h(`i.fill-${row.key}`, {style: {'flex-grow': row.bytes / Math.max(1, whole)}, title: `${row.key}: ${bytesText(row.bytes)}, ${shareText(row.bytes, whole)}`})));
}

// lens: lines from the mapped sliver to the full width below.
function lens(share) {
  const NS = 'http://www.w3.org/2000/svg';
  const svg = document.createElementNS(NS, 'svg');
  svg.setAttribute('viewBox', '0 0 1000 24');
  svg.setAttribute('preserveAspectRatio', 'none');
  svg.setAttribute('aria-hidden', 'true');
  const shape = document.createElementNS(NS, 'polygon');
  shape.setAttribute('points', `0,0 ${Math.max(3, 1000 * share)},0 1000,24 0,24`);
  svg.append(shape);
  return svg;
}

// fitAnswer: whether a block of that size can be had now, and the cheapest way to it.
function fitAnswer(app, bytes) {
  const {totals, spares, mappings} = app.state;
  if (!(bytes > 0)) return h('p.quiet', 'A size is like 4096, 64 MiB or 8 GiB.');
  const room = roomOf(app);
  const granule = app.granule;
  const needed = Math.ceil(bytes / granule) * granule;
  const idle = totals.parked;
  const ways = [];
  if (totals.largestFreeMapped != null && bytes <= totals.largestFreeMapped) {
    return verdict('yes', 'Yes, without a driver call.', `The largest free stretch that is mapped is ${bytesText(totals.largestFreeMapped)}.`);
  }
  const parkedChunks = countParked(mappings, needed);
  if (idle + (totals.spare ?? 0) >= needed) {
    ways.push(verdict('yes', 'Yes, by remapping memory that is idle.',
      `About ${countText(parkedChunks)} parked ${parkedChunks === 1 ? 'chunk moves' : 'chunks move'} to new addresses${spares.length ? `, or ${countText(spares.length)} spare ones are mapped` : ''}; no new memory, nothing is copied.`));
  }
  if (room !== null && room >= needed) {
    ways.push(verdict('yes', `${ways.length ? 'Or with' : 'Yes, with'} new memory.`, `${bytesText(needed)} of the ${bytesText(room)} that can still be had from the device.`));
  }
  if (ways.length > 0) return ways;
  const most = (room ?? 0) + idle + (totals.spare ?? 0);
  if (most >= needed) {
    return verdict('yes', 'Yes, with idle and new memory together.', `${bytesText(idle)} parked and ${bytesText(needed - idle)} new.`);
  }
  if (room === null) return verdict('maybe', 'Not from idle memory.', `${bytesText(idle)} is parked; what the device has left at this event is not in the log.`);
  return verdict('no', 'No.', `At most ${bytesText(most)} can be had: ${bytesText(idle)} parked, ${bytesText(room)} from the device.`);
}

const verdict = (kind, head, text) => h(`p.verdict.${kind}`, {'data-verdict': kind}, h('b', head), ' ', text);

function countParked(mappings, needed) {
  const sizes = [];
  for (let i = 0; i < mappings.n; i++) if (isIdle(mappings.state[i])) sizes.push(mappings.len[i]);
  sizes.sort((a, b) => b - a);
  let count = 0;
  for (let sum = 0; count < sizes.length && sum < needed; count++) sum += sizes[count];
  return count;
}

// roomOf: bytes of new memory that the device and the hard limit leave; null where that isn't known.
function roomOf(app) {
  const {totals} = app.state;
  if (totals.deviceFree == null) return null;
  const limit = hardLimit(app);
  return Math.min(totals.deviceFree, limit === null ? Infinity : minus(limit, totals.mapped + (totals.spare ?? 0)));
}

function hardLimit(app) {
  const value = app.page.documents[0]?.stats?.hard_limit;
  return typeof value === 'number' ? value : null;
}
