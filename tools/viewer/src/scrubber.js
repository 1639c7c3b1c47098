// scrubber.js: the bar at the bottom: which event the page shows, how to go to others, and what the event was.
import {KIND} from './history.js';
import {theme} from './theme.js';
import {bytesText, countText, fitCanvas, h, replace, timeText} from './util.js';

const MARKERS = new Set([KIND.oom, KIND.defragment, KIND.trim, KIND.mark, KIND.step, KIND.snapshot, KIND.suspend, KIND.resume]);
const PLAY_SECONDS = 20;

export class Scrubber {
  constructor(app) {
    this.app = app;
    this.element = h('footer.scrubber', {id: 'scrubber'});
    const {history} = app.page;
    if (!history) {
      this.element.hidden = true;
      return;
    }
    const button = (text, title, act, id) => h('button', {type: 'button', title, 'aria-label': title, id, onclick: act}, text);
    this.graph = h('canvas.graph', {'aria-hidden': 'true'});
    this.slider = h('input', {type: 'range', id: 'scrub', min: 0, max: history.n - history.initial, step: 1, 'aria-label': 'event',
      oninput: () => app.setEvent(history.initial + Number(this.slider.value) - 1)});
    this.number = h('input', {id: 'scrub-number', inputmode: 'numeric', 'aria-label': 'number of the event', onchange: () => this.typed()});
    this.text = h('span.what', {id: 'scrub-text'});
    this.play = button('▶', 'play (space)', () => this.toggle(), 'scrub-play');
    this.element.append(
      h('div.controls', this.play, button('|◂', 'first event (Home)', () => app.setEvent(history.initial - 1)), button('◂', 'one event back (key [)', () => this.step(-1), 'scrub-back'),
        button('▸', 'one event on (key ])', () => this.step(1), 'scrub-on'), button('▸|', 'last event (End)', () => app.setEvent(history.n - 1)),
        button('next marker', 'next step, mark, defragmentation or out of memory (key n)', () => this.marker(1), 'scrub-marker'),
        button('peak', 'the most mapped bytes (key p)', () => app.setEvent(app.peak), 'scrub-peak'),
        app.page.states.length > 0 && button('snapshot', 'the snapshot itself (key s)', () => app.showSnapshot(), 'scrub-snapshot'),
        h('label.event', 'event ', this.number, h('span.quiet', ` of ${countText(history.n - history.initial)}`)), this.text),
      h('div.track', this.graph, this.slider));
  }

  step(by) {
    this.app.setEvent(this.app.event + by);
  }

  typed() {
    const {history} = this.app.page;
    const number = Number(this.number.value.replace(/[\s\u202f,]/g, ''));
    if (Number.isFinite(number)) this.app.setEvent(history.initial + Math.round(number) - 1);
    else this.stateChanged();
  }

  marker(direction) {
    const {history} = this.app.page;
    for (let i = this.app.event + direction; i >= history.initial && i < history.n; i += direction) {
      if (MARKERS.has(history.kind[i])) return this.app.setEvent(i);
    }
    return undefined;
  }

  toggle() {
    if (this.timer) {
      clearInterval(this.timer);
      this.timer = null;
    } else {
      const {history} = this.app.page;
      const by = Math.max(1, Math.round((history.n - history.initial) / (PLAY_SECONDS * 12)));
      if (this.app.event >= history.n - 1) this.app.setEvent(history.initial);
      this.timer = setInterval(() => {
        if (this.app.event >= history.n - 1) this.toggle();
        else this.app.setEvent(Math.min(history.n - 1, this.app.event + by));
      }, 83);
    }
    replace(this.play, this.timer ? '❚❚' : '▶');
  }

  stateChanged() {
    const {app} = this;
    const {history} = app.page;
    if (!history) return;
    const number = app.event - history.initial + 1;
    this.slider.value = String(number);
    this.number.value = String(number);
    replace(this.text, app.state.kind === 'snapshot' ? 'the snapshot' : this.describe());
  }

  describe() {
    const {app} = this;
    const {history} = app.page;
    const {event} = app;
    if (event < history.initial) return 'before the first event';
    const kind = history.kind[event];
    const parts = [timeText(history.time[event] - history.time[history.initial]), history.describe(event)];
    if (history.bytes[event] > 0) parts.push(bytesText(history.bytes[event]));
    if (((kind >= KIND.alloc && kind <= KIND.unmap) || kind === KIND.share) && kind !== KIND.oom) parts.push(`at ${history.space.addressText(history.place[event])}`);
    if (kind <= KIND.use && kind >= KIND.alloc && history.stream[event] !== 255) parts.push(`stream ${history.stream[event]}`);
    const text = history.strings[history.tag[event]];
    if (text) parts.push(text);
    return parts.join(' · ');
  }

  // The live bytes above the slider, so that one sees where one goes.
  resize() {
    const {history} = this.app.page;
    if (!history) return;
    const width = Math.floor(this.slider.clientWidth);
    if (width < 50) return;
    const height = 26;
    const c = fitCanvas(this.graph, width, height);
    const t = theme();
    const {n, initial, live, mapped} = history;
    const most = Math.max(1, highest(history));
    const draw = (values, color) => {
      c.fillStyle = color;
      for (let x = 0; x < width; x++) {
        const from = initial + Math.floor((x / width) * (n - initial));
        const to = Math.max(from + 1, initial + Math.floor(((x + 1) / width) * (n - initial)));
        let top = 0;
        for (let i = from; i < to && i < n; i++) if (values[i] > top) top = values[i];
        const part = (height - 1) * (top / most);
        c.fillRect(x, height - part, 1, part);
      }
    };
    draw(mapped, t.faint);
    draw(live, t.live);
  }
}

const highest = (history) => {
  let top = 0;
  for (let i = 0; i < history.n; i++) top = Math.max(top, history.mapped[i], history.live[i]);
  return top;
};
