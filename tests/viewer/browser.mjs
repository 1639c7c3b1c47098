// browser.mjs: a headless Chromium, driven over its debugging pipe (file descriptors 3 and 4), without any package.
//
// Owns: the process, its folder, requests and answers of the DevTools protocol. Every request that a page makes is kept
// (Page.requests), so that a test can say that there was none.
import {spawn} from 'node:child_process';
import {mkdtempSync, rmSync, writeFileSync} from 'node:fs';
import {tmpdir} from 'node:os';
import {join} from 'node:path';

export class Browser {
  constructor(program) {
    this.folder = mkdtempSync(join(process.env.TEST_TMPDIR ?? tmpdir(), 'chromium-'));
    this.process = spawn(program, ['--headless=new', '--remote-debugging-pipe', '--no-sandbox', '--disable-gpu', '--hide-scrollbars', '--no-first-run',
      '--disable-background-networking', '--disable-component-update', '--disable-sync', '--disable-extensions', '--disable-dev-shm-usage', '--allow-file-access-from-files=false',
      '--force-color-profile=srgb', `--user-data-dir=${this.folder}`, 'about:blank'],
    {stdio: ['ignore', 'ignore', 'pipe', 'pipe', 'pipe'], env: {...process.env, HOME: this.folder, XDG_CONFIG_HOME: this.folder, XDG_CACHE_HOME: this.folder}});
    this.errors = '';
    this.process.stderr.on('data', (data) => (this.errors += data));
    this.ended = new Promise((resolve) => this.process.on('exit', resolve));
    this.waiting = new Map();
    this.listeners = [];
    this.id = 0;
    let rest = '';
    this.process.stdio[4].on('data', (data) => {
      const parts = (rest + data.toString('utf8')).split('\0');
      rest = parts.pop();
      for (const part of parts) this.received(JSON.parse(part));
    });
    this.ended.then((code) => {
      for (const {reject} of this.waiting.values()) reject(new Error(`chromium ended (${code}): ${this.errors.slice(-2000)}`));
    });
  }

  received(message) {
    if (message.id !== undefined) {
      const {resolve, reject, method} = this.waiting.get(message.id);
      this.waiting.delete(message.id);
      if (message.error) reject(new Error(`${method}: ${message.error.message}`));
      else resolve(message.result);
      return;
    }
    for (const listener of this.listeners) listener(message);
  }

  send(method, params = {}, sessionId = undefined) {
    const id = ++this.id;
    this.process.stdio[3].write(`${JSON.stringify({id, method, params, sessionId})}\0`);
    return new Promise((resolve, reject) => this.waiting.set(id, {resolve, reject, method}));
  }

  async open(url, {width = 1440, height = 900, dark = false} = {}) {
    const {targetId} = await this.send('Target.createTarget', {url: 'about:blank'});
    const {sessionId} = await this.send('Target.attachToTarget', {targetId, flatten: true});
    const page = new Page(this, sessionId, targetId);
    for (const domain of ['Page', 'Runtime', 'Network', 'Log', 'Performance']) await page.send(`${domain}.enable`);
    await page.send('Emulation.setDeviceMetricsOverride', {width, height, deviceScaleFactor: 1, mobile: false});
    await page.send('Emulation.setEmulatedMedia', {features: [{name: 'prefers-color-scheme', value: dark ? 'dark' : 'light'}]});
    await page.send('Page.navigate', {url});
    return page;
  }

  async close() {
    await this.send('Browser.close').catch(() => {});
    await this.ended;
    rmSync(this.folder, {recursive: true, force: true, maxRetries: 5});
  }
}

export class Page {
  constructor(browser, session, target) {
    Object.assign(this, {browser, session, target, requests: [], problems: []});
    browser.listeners.push((message) => message.sessionId === session && this.event(message));
  }

  event({method, params}) {
    if (method === 'Network.requestWillBeSent') this.requests.push(params.request.url);
    if (method === 'Runtime.exceptionThrown') this.problems.push(params.exceptionDetails.exception?.description ?? params.exceptionDetails.text);
    if (method === 'Log.entryAdded' && params.entry.level === 'error') this.problems.push(params.entry.text);
    if (method === 'Runtime.consoleAPICalled' && params.type === 'error') this.problems.push(JSON.stringify(params.args.map((one) => one.value ?? one.description)));
  }

  send(method, params) {
    return this.browser.send(method, params, this.session);
  }

  // run evaluates an expression, or a function with arguments that JSON can carry, in the page.
  async run(what, ...args) {
    const expression = typeof what === 'function' ? `(${what})(...${JSON.stringify(args)})` : what;
    const {result, exceptionDetails} = await this.send('Runtime.evaluate', {expression, awaitPromise: true, returnByValue: true});
    if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
    return result.value;
  }

  // until repeats the question until it is true.
  async until(what, seconds = 60) {
    const end = Date.now() + 1000 * seconds;
    for (;;) {
      const value = await this.run(what);
      if (value) return value;
      if (Date.now() > end) throw new Error(`not true within ${seconds} s: ${what}\n${this.problems.join('\n')}`);
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }

  // frame waits until what was asked for is painted.
  frame() {
    return this.run('new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))');
  }

  async ready() {
    await this.until('document.body && (document.body.dataset.ready || document.body.dataset.failed)');
    await this.frame();
    await this.frame();
  }

  async key(key, {shift = false} = {}) {
    const text = key.length === 1 ? key : undefined;
    const modifiers = shift ? 8 : 0;
    const windowsVirtualKeyCode = {Enter: 13, Escape: 27, Home: 36, End: 35, ArrowLeft: 37, ArrowUp: 38, ArrowRight: 39, ArrowDown: 40}[key] ?? key.toUpperCase().charCodeAt(0);
    await this.send('Input.dispatchKeyEvent', {type: 'keyDown', key, text: key === 'Enter' ? '\r' : text, modifiers, windowsVirtualKeyCode});
    await this.send('Input.dispatchKeyEvent', {type: 'keyUp', key, modifiers, windowsVirtualKeyCode});
    await this.frame();
  }

  async type(text) {
    await this.send('Input.insertText', {text});
    await this.frame();
  }

  async mouse(type, x, y, more = {}) {
    await this.send('Input.dispatchMouseEvent', {type, x, y, button: type === 'mouseMoved' ? 'none' : 'left', buttons: type === 'mousePressed' ? 1 : 0, clickCount: 1, ...more});
  }

  async click(x, y) {
    await this.mouse('mouseMoved', x, y);
    await this.mouse('mousePressed', x, y);
    await this.mouse('mouseReleased', x, y);
    await this.frame();
  }

  async clickOn(selector) {
    const box = await this.run((one) => {
      const element = document.querySelector(one);
      if (!element) throw new Error(`no ${one}`);
      element.scrollIntoView({block: 'center'});
      const {x, y, width, height} = element.getBoundingClientRect();
      return {x: x + width / 2, y: y + height / 2};
    }, selector);
    await this.click(box.x, box.y);
  }

  async wheel(x, y, delta) {
    await this.mouse('mouseWheel', x, y, {button: 'none', deltaX: 0, deltaY: delta});
    await this.frame();
  }

  async screenshot(path) {
    await this.frame();
    const {data} = await this.send('Page.captureScreenshot', {format: 'png'});
    writeFileSync(path, Buffer.from(data, 'base64'));
  }

  async heapBytes() {
    const {metrics} = await this.send('Performance.getMetrics');
    return metrics.find((one) => one.name === 'JSHeapUsedSize').value;
  }

  async close() {
    await this.browser.send('Target.closeTarget', {targetId: this.target});
  }
}
