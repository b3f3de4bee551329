// The page: asks the server, and draws what it says.

import { drawDevices, processLine } from './devices.js';
import { el, setAttribute, setText, show } from './dom.js';
import { History } from './history.js';
import { read } from './metrics.js';
import { drawModels, modelsHead, versions } from './models.js';
import { hasKey, Poll, setKey } from './poll.js';
import { refreshTip, startTips } from './tip.js';
import { drawErrors, drawQueues, makeTiles, Traffic } from './traffic.js';
import { TryForm } from './try.js';
import { count, plural, seconds } from './units.js';

const get = (id) => document.getElementById(id);

const history = new History();
const traffic = new Traffic();
const form = new TryForm(get('try-form'));
const drawTiles = makeTiles(get('tiles'));
const sections = {
  devices: { list: get('device-list'), note: get('scale-note') },
  models: { table: get('model-table'), head: modelsHead(), empty: get('model-empty') },
  queues: { table: get('queue-table'), body: get('queue-body'), empty: get('queue-empty'), note: get('queue-note') },
  errors: { table: get('error-table'), body: get('error-body'), empty: get('error-empty') },
};
const seen = {};
let last = null;

const poll = new Poll({ update, gone, needsKey });

/** True if a page is newer than when this was asked for it last. */
function isNew(pages, name) {
  const { at } = pages[name];
  if (at === undefined || seen[name] === at) return false;
  seen[name] = at;
  return true;
}

function update(pages) {
  last = pages;
  const { memory, scheduler, models, metrics } = pages;
  if (isNew(pages, 'memory')) history.add(memory.at, memory.value, models.value);
  if (isNew(pages, 'metrics')) traffic.addMetrics(metrics.at, read(metrics.value));
  if (isNew(pages, 'scheduler')) traffic.addScheduler(scheduler.at, scheduler.value);
  show(get('gone'), false);
  show(get('key'), false);
  document.body.classList.remove('stale');
  show(get('page'), true);
  show(get('forget-key'), hasKey());
  draw();
}

/** Draws the last look; also when a person changes how it is drawn. */
function draw() {
  if (!last) return;
  const { memory, scheduler, models, about, devices } = last;
  const facts = about.value;
  refuse('devices', memory);
  refuse('models', models);
  refuse('traffic', scheduler.error ? scheduler : last.metrics);
  if (memory.value) {
    const scale = get('scale').value;
    const lanes = { lanes: traffic.lanes() };
    drawDevices(sections.devices, memory.value, { history, scheduler: lanes, about: facts, scale });
    setText(get('process'), processLine(memory.value));
  }
  if (models.value) {
    const rows = versions(models.value, memory.value);
    const how = { traffic, about: facts, order: get('order').value, filter: get('filter').value };
    drawModels(sections.models, rows, how);
    form.offer(rows);
    drawSummary(rows);
  }
  if (scheduler.value) drawQueues(sections.queues, traffic, scheduler.value, get('all-queues').checked);
  if (last.metrics.value) drawErrors(sections.errors, traffic);
  drawTiles(traffic);
  drawWarnings(devices.value?.warnings ?? []);
  if (facts) setText(get('version'), `${facts.program} ${facts.version}`);
  refreshTip();
}

/** Says in a section why it shows nothing, where a key is not enough. */
function refuse(id, page) {
  const note = get(`${id}-refused`);
  setText(note, page.value === undefined ? (page.error ?? '') : '');
  show(note, note.textContent !== '');
}

function drawSummary(rows) {
  const names = new Set(rows.map((row) => row.name));
  const n = rows.filter((row) => row.state === 'AVAILABLE').length;
  const failed = rows.filter((row) => row.error !== '' && row.state !== 'AVAILABLE').length;
  const loading = rows.filter((row) => row.state === 'LOADING' || row.state === 'START').length;
  const words = [plural(names.size, 'model'), `${count(n)} of ${plural(rows.length, 'version')} available`];
  if (loading > 0) words.push(`${count(loading)} loading`);
  if (failed > 0) words.push(`${count(failed)} failed`);
  setText(get('summary'), words.join(' · '));
  setAttribute(get('health'), 'data-health', failed > 0 ? 'warn' : loading > 0 ? 'busy' : 'good');
}

function drawWarnings(warnings) {
  const list = get('warnings');
  show(list, warnings.length > 0);
  if (list.childElementCount !== warnings.length) {
    list.replaceChildren(...warnings.map((warning) => el('li', {}, warning)));
  }
}

/** Nothing answers: what is shown is old, and says so. */
function gone(since, wait) {
  const ago = seconds((Date.now() - since) / 1000);
  setText(get('gone-text'), `The server has not answered for ${ago}. The page asks again in ${seconds(wait / 1000)}; what it shows is from before.`);
  show(get('gone'), true);
  document.body.classList.add('stale');
  setAttribute(get('health'), 'data-health', 'bad');
}

function needsKey(message) {
  const dialog = get('key');
  const isFirst = dialog.hidden;
  setText(get('key-message'), hasKey() ? message : 'This server asks for an API key with the right “read”.');
  get('key-message').classList.toggle('bad', hasKey());
  show(dialog, true);
  show(get('page'), false);
  show(get('gone'), false);
  if (isFirst) get('key-input').focus();
}

get('key').addEventListener('submit', (event) => {
  event.preventDefault();
  setKey(get('key-input').value.trim());
  get('key-input').value = '';
  poll.restart();
});

get('forget-key').addEventListener('click', () => {
  setKey(null);
  location.reload();
});

get('pause').addEventListener('click', () => {
  const isPaused = !poll.isPaused;
  poll.pause(isPaused);
  setText(get('pause'), isPaused ? 'Go on' : 'Pause');
  setAttribute(get('pause'), 'aria-pressed', String(isPaused));
});

get('retry').addEventListener('click', () => poll.wake());
for (const id of ['scale', 'order', 'all-queues']) get(id).addEventListener('change', draw);
get('filter').addEventListener('input', draw);
addEventListener('resize', draw);

startTips();
poll.wake();
