// details.js: the panel on the right: what is selected, what backs it, who is next to it, who was there before.
import {blockLines, mappingLines} from './describe.js';
import {bytesText, countText, h, replace, timeText} from './util.js';

export class Details {
  constructor(app) {
    this.app = app;
    this.element = h('aside.details', {id: 'details', 'aria-label': 'details', 'aria-live': 'polite'});
  }

  stateChanged() {
    const {app} = this;
    const {selection} = app;
    if (!selection) {
      replace(this.element, h('div.empty', h('b', 'Nothing is selected'),
        h('p', 'Click a block or a chunk, or search for an address: who owns it, who did, and what is next to it.')));
      return;
    }
    const block = app.state.blockAt(selection.off);
    const parts = [];
    if (selection.lane === 'back') parts.push(this.mapping(app.state.mappingAt(selection.off), selection, true));
    else if (block >= 0) parts.push(this.block(block), this.backing(selection));
    else parts.push(this.nobody(selection), this.backing(selection));
    parts.push(this.neighbours(selection, block), this.past(selection, block));
    replace(this.element, h('div.head', h('span.grow'), h('button', {type: 'button', title: 'copy as text', onclick: () => this.copy()}, 'copy'),
      app.view.id !== 'map' && h('button', {type: 'button', id: 'details-map', onclick: () => app.go(selection)}, 'on the map'),
      h('button', {type: 'button', title: 'close (Escape)', 'aria-label': 'close', onclick: () => app.select(null)}, '×')), parts);
  }

  lines(lines, kind) {
    const [[, title], ...rest] = lines;
    return h('section', h('h2', h('span.quiet', kind), ' ', title), h('dl.facts', rest.map(([name, value]) => [h('dt', name), h('dd', {class: name === 'address' ? 'mono' : ''}, value)])));
  }

  block(index) {
    return this.lines(blockLines(this.app, index), 'block');
  }

  mapping(index, selection, chosen) {
    if (index < 0) return chosen ? h('section', h('h2', 'not mapped'), h('p.quiet', `Nothing backs ${this.app.state.space.addressText(selection.off)} now.`)) : null;
    return this.lines(mappingLines(this.app, index), chosen ? 'chunk' : 'backed by');
  }

  nobody(selection) {
    return h('section', h('h2', 'no live block'), h('dl.facts', h('dt', 'address'), h('dd.mono', this.app.state.space.addressText(selection.off))));
  }

  // What backs a block: the first chunk, and how many.
  backing(selection) {
    const {mappings} = this.app.state;
    const first = this.app.state.mappingAt(selection.off);
    if (first < 0) return h('section', h('h2', 'not mapped'), h('p.quiet', 'A touch of this address faults.'));
    let last = first;
    while (last + 1 < mappings.n && mappings.off[last + 1] < selection.off + selection.len) last++;
    if (last === first) return this.mapping(first, selection, false);
    let bytes = 0;
    for (let i = first; i <= last; i++) bytes += mappings.len[i];
    return h('section', h('h2', h('span.quiet', 'backed by'), ` ${countText(last - first + 1)} chunks`), h('dl.facts', h('dt', 'numbers'), h('dd', `${mappings.chunk[first]} … ${mappings.chunk[last]}`),
      h('dt', 'size'), h('dd', bytesText(bytes))));
  }

  neighbours(selection, block) {
    const {blocks, space} = this.app.state;
    let after = block + 1;
    if (block < 0) {
      after = 0;
      while (after < blocks.n && blocks.off[after] < selection.off) after++;
    }
    const before = block >= 0 ? block - 1 : after - 1;
    const row = (i, name, distance) => i >= 0 && i < blocks.n && h('tr.go', {tabindex: 0, onclick: () => this.app.select({lane: 'blocks', off: blocks.off[i], len: blocks.len[i]})},
      h('td', name), h('td.mono', space.addressText(blocks.off[i])), h('td.number', bytesText(blocks.len[i])), h('td.number.quiet', distance === 0 ? 'adjoins' : bytesText(distance)));
    const end = block >= 0 ? blocks.off[block] + blocks.len[block] : selection.off;
    const start = block >= 0 ? blocks.off[block] : selection.off;
    const rows = [before >= 0 && row(before, 'before', start - blocks.off[before] - blocks.len[before]), after < blocks.n && row(after, 'after', blocks.off[after] - end)];
    return rows.some(Boolean) && h('section', h('h3', 'Next to it'), h('table.data', h('tbody', rows)));
  }

  // Who was there: from the log.
  past(selection, block) {
    const {app} = this;
    const {history} = app.page;
    if (!history) return null;
    const until = app.event;
    const owners = history.owners(selection.off, until).filter((one) => block < 0 || one.start !== app.state.blocks.born[block]);
    const unmapped = app.state.mappingAt(selection.off) < 0 ? history.lastUnmapped(selection.off, until) : -1;
    const at = (event) => `event ${countText(event - history.initial + 1)}`;
    return h('section', h('h3', 'Before'), unmapped >= 0 && h('p', 'Unmapped at ', h('a', {href: '#', onclick: (event) => this.goTo(event, unmapped)}, at(unmapped)), '.'),
      owners.length === 0 ? h('p.quiet', 'No other owner in the log.') : h('ul.past', owners.map((one) => h('li',
        h('b', bytesText(one.len)), one.tag ? ` ${history.strings[one.tag]}` : '', h('span.quiet', ` at ${history.space.addressText(one.off)}, stream ${one.stream}`), h('br'),
        one.start < history.initial ? 'from before the log' : h('a', {href: '#', onclick: (event) => this.goTo(event, one.start)}, at(one.start)), ' to ',
        one.end === Infinity ? 'now' : h('a', {href: '#', onclick: (event) => this.goTo(event, one.end)}, at(one.end)),
        one.end !== Infinity && h('span.quiet', `, freed ${timeText(history.time[Math.max(until, 0)] - history.time[one.end])} before`)))));
  }

  goTo(event, number) {
    event.preventDefault();
    this.app.setEvent(number);
  }

  copy() {
    const text = [...this.element.querySelectorAll('h2, h3, dt, tr, li, p')].map((one) => (one.tagName === 'DT' ? `  ${one.textContent}: ${one.nextElementSibling?.textContent}` : one.textContent)).join('\n');
    navigator.clipboard?.writeText(text);
  }
}

