// pins.js: why a chunk can't be taken: live blocks that touch it, unfinished work, explicit pins.
import {STATE} from './state.js';
import {fenceText} from './describe.js';
import {bytesText, countText, csvCell, exactBytes, h, replace, saveText, shareText} from './util.js';

const MOST_ROWS = 200;

export class PinsView {
  constructor(app) {
    this.app = app;
    this.id = 'pins';
    this.title = 'Pins';
    this.element = h('section.view', {id: 'view-pins'});
  }

  show() {
    this.stateChanged();
  }

  stateChanged() {
    const {state} = this.app;
    const {mappings} = state;
    const held = [];
    const waiting = [];
    for (let i = 0; i < mappings.n; i++) {
      if (mappings.state[i] === STATE.mapped && mappings.live[i] > 0) held.push(i);
      else if (mappings.state[i] !== STATE.mapped && mappings.streams[i] && mappings.streams[i] !== '0x0') waiting.push(i);
    }
    held.sort((a, b) => mappings.liveBytes[a] - mappings.liveBytes[b]);
    this.held = held;
    const bytes = (list) => list.reduce((sum, i) => sum + mappings.len[i], 0);
    const nearlyEmpty = held.filter((i) => mappings.liveBytes[i] < mappings.len[i] / 10);
    const card = (name, list, what) => h('div.card.figure', h('span', name), h('b', {'data-figure': name, 'data-bytes': bytes(list), 'data-count': list.length}, bytesText(bytes(list))),
      h('p.quiet', `${countText(list.length)} chunks ${what}`));
    replace(this.element,
      h('div.cards', card('held by live blocks', held, 'can’t be taken'), card('held by little', nearlyEmpty, 'are less than a tenth live: only copying would free them'),
        card('waiting for work', waiting, 'may still be touched by a stream')),
      this.explicit(state), this.heldTable(held), this.waitingTable(waiting));
  }

  explicit(state) {
    if (state.pins.length === 0) return null;
    return h('div.card', h('h2', 'Pinned by request'), h('table.data', h('thead', h('tr', h('th', 'address'), h('th.number', 'size'), h('th.number', 'pins'), h('th', 'reason'), h('th', ''))),
      h('tbody', state.pins.slice(0, MOST_ROWS).map((pin) => h('tr', h('td.mono', String(pin.address)), h('td.number', bytesText(pin.bytes)), h('td.number', countText(pin.pins)),
        h('td', pin.reason == null ? 'no reason was given' : String(pin.reason)), h('td.quiet', pin.live ? 'a live block' : 'no live block begins here'))))),
      state.pins.length > MOST_ROWS && h('p.quiet', `and ${countText(state.pins.length - MOST_ROWS)} more`));
  }

  row(i, ...cells) {
    const {app} = this;
    const {mappings} = app.state;
    return h('tr.go', {tabindex: 0, onclick: () => app.go({lane: 'back', off: mappings.off[i], len: mappings.len[i]}),
      onkeydown: (event) => event.key === 'Enter' && app.go({lane: 'back', off: mappings.off[i], len: mappings.len[i]})},
      h('td', `chunk ${mappings.chunk[i]}`), h('td.mono', app.state.space.addressText(mappings.off[i])), h('td.number', bytesText(mappings.len[i])), cells);
  }

  heldTable(held) {
    const {mappings} = this.app.state;
    return h('div.card', h('div.head', h('h2', 'Held by live blocks'), h('span.quiet', 'the least used first: what frees most for least'), h('span.grow'),
      held.length > 0 && h('button', {type: 'button', onclick: () => this.csv()}, 'CSV')),
      held.length === 0 ? h('p.quiet', 'No live block: every chunk can be taken once its fence is complete.') :
        h('table.data', h('thead', h('tr', h('th', 'chunk'), h('th', 'address'), h('th.number', 'size'), h('th.number', 'blocks'), h('th.number', 'live'), h('th.wide', ''))),
          h('tbody', held.slice(0, MOST_ROWS).map((i) => this.row(i, h('td.number', countText(mappings.live[i])), h('td.number', {title: exactBytes(mappings.liveBytes[i])}, bytesText(mappings.liveBytes[i])),
            h('td.wide', h('span.track', h('i.fill-live', {style: {width: `${(100 * mappings.liveBytes[i]) / mappings.len[i]}%`}})), ' ', shareText(mappings.liveBytes[i], mappings.len[i])))))),
      held.length > MOST_ROWS && h('p.quiet', `and ${countText(held.length - MOST_ROWS)} more, in the CSV`));
  }

  waitingTable(waiting) {
    const {mappings} = this.app.state;
    if (waiting.length === 0) return null;
    return h('div.card', h('h2', 'Waiting for GPU work'), h('table.data', h('thead', h('tr', h('th', 'chunk'), h('th', 'address'), h('th.number', 'size'), h('th', 'fence'))),
      h('tbody', waiting.slice(0, MOST_ROWS).map((i) => this.row(i, h('td', fenceText(mappings.streams[i])))))),
      waiting.length > MOST_ROWS && h('p.quiet', `and ${countText(waiting.length - MOST_ROWS)} more`));
  }

  csv() {
    const {state} = this.app;
    const {mappings} = state;
    const lines = ['chunk,address,bytes,blocks,live_bytes'];
    for (const i of this.held) lines.push([mappings.chunk[i], state.space.addressText(mappings.off[i]), mappings.len[i], mappings.live[i], mappings.liveBytes[i]].map(csvCell).join(','));
    saveText('vmpool-pins.csv', `${lines.join('\n')}\n`, 'text/csv');
  }
}
