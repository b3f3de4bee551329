// Devices: a bar of the limit, and under it the held memory enlarged, piece by piece.

import { memoryChart } from './chart.js';
import { command, el, keyed, setAttribute, setText, show, svg } from './dom.js';
import { heldOf, limitOf } from './explain.js';
import { categoryName, CATEGORIES, describe, drawn, levels, totals } from './pieces.js';
import { withTip } from './tip.js';
import { bytes, count, exact, percent, plural } from './units.js';

/** Pieces narrower than this are joined: they could not be pointed at. */
const PIECE_PIXELS_MIN = 4;

/** Groups narrower than this have no name under them. */
const NAME_PIXELS_MIN = 44;

/** Limits further apart than this are not drawn to one scale unless a person asks for it. */
const LIMITS_APART_MAX = 50;

/** Likewise for what is held, whose pieces must be seen. */
const HELD_APART_MAX = 8;

/** Draws the devices of the memory page into the section of them. */
export function drawDevices(section, memory, { history, scheduler, about, scale }) {
  const devices = memory.devices;
  const scales = {
    limit: common(devices, (device) => device.limit_bytes, scale, LIMITS_APART_MAX),
    held: common(devices, (device) => device.reserved_bytes, scale, HELD_APART_MAX),
  };
  const lanes = busyLanes(scheduler);
  setText(section.note, scaleNote(scales));
  keyed(section.list, devices, (device) => device.name, makeDevice, (node, device) => {
    node.draw(device, { scales, lanes: lanes.get(device.name), about });
    node.chart.draw(history.of(device.name), history.marksOf(device.name));
  });
}

/**
 * The bytes of a full width, by device: one for all if that is readable, else one for the GPUs and
 * one for the host, else none, and each device fills the width.
 */
function common(devices, size, scale, apart) {
  const full = (some) => {
    const sizes = some.map(size).filter((n) => n > 0);
    const most = Math.max(...sizes, 1);
    const isReadable = sizes.length > 0 && most / Math.min(...sizes) <= apart;
    return scale === 'one' || (scale === 'auto' && isReadable) ? most : null;
  };
  const all = full(devices);
  const kinds = Map.groupBy(devices, (device) => device.kind);
  const scales = new Map();
  for (const [, some] of kinds) {
    const one = all ?? full(some);
    for (const device of some) scales.set(device.name, one);
  }
  const byKind = all === null && full(kinds.get('gpu') ?? []) !== null;
  return { of: (name) => scales.get(name) ?? null, all, byKind };
}

function scaleNote({ limit, held }) {
  const text = ({ all, byKind }, what) => {
    if (all !== null) return `${what}: one scale, full width is ${bytes(all)}`;
    return byKind ? `${what}: one scale for all GPUs` : `${what}: each device to its own scale`;
  };
  return `${text(limit, 'Limits')}. ${text(held, 'Held memory')}.`;
}

/** How busy the lanes of each device are, since the last look or in all. */
function busyLanes(scheduler) {
  const lanes = new Map();
  for (const { device, busy } of scheduler?.lanes ?? []) {
    lanes.set(device, [...(lanes.get(device) ?? []), busy]);
  }
  return lanes;
}

function makeDevice(device) {
  const title = el('h3', {}, device.name);
  const kind = el('span', { class: 'device-kind' });
  const held = el('strong');
  const limit = el('span');
  const sum = el('p', { class: 'device-sum' }, held, limit);
  const fill = { used: el('i', { class: 'fill used' }), idle: el('i', { class: 'fill idle' }), promised: el('i', { class: 'fill promised' }) };
  const limitBar = el('div', { class: 'limit-bar', role: 'img', tabindex: '0' }, fill.used, fill.idle, fill.promised);
  const [zoom, innerZoom] = [makeZoom(), makeZoom()];
  const bar = makeBar('held', `Memory held of ${device.name}: use the arrow keys`);
  const inner = makeBar('used', `Memory in use of ${device.name}: use the arrow keys`);
  const legend = el('ul', { class: 'legend' });
  const why = whyList();
  const chart = memoryChart(device.name);
  const node = el(
    'article', { class: 'device', dataset: { device: device.name } },
    el('header', {}, title, kind, sum),
    el('div', { class: 'device-bars' }, limitBar, zoom, bar, innerZoom, inner, legend),
    chart, why.node,
  );
  let last = device;
  node.chart = chart;
  withTip(limitBar, () => limitWords(last));
  node.draw = (now, context) => {
    last = now;
    setText(kind, kindOf(now, context.lanes));
    setText(held, bytes(now.reserved_bytes));
    setAttribute(held, 'title', exact(now.reserved_bytes));
    setText(limit, ` held of ${bytes(now.limit_bytes)} · ${percent(now.reserved_bytes / now.limit_bytes)}`);
    setAttribute(limit, 'title', exact(now.limit_bytes));
    const end = drawLimit(limitBar, fill, now, context.scales.limit.of(now.name));
    const { held: all, used } = levels(now);
    const width = drawPieces(bar, now, all, context.scales.held.of(now.name));
    zoom.from(end, width);
    const part = (used ?? []).reduce((sum, group) => sum + group.bytes, 0);
    show(inner, used !== null);
    // A drawing has no property for this.
    innerZoom.classList.toggle('absent', used === null);
    if (used) {
      const from = (part / now.reserved_bytes) * width;
      innerZoom.from(from, drawPieces(inner, now, used, null));
    }
    drawLegend(legend, now);
    why.draw(now, context.about);
  };
  return node;
}

function makeBar(level, label) {
  const bar = el('div', { class: `pieces ${level}`, role: 'toolbar', 'aria-label': label });
  bar.addEventListener('keydown', (event) => moveFocus(bar, event));
  return bar;
}

/** The shade between a part of a bar and the bar below, which enlarges it. */
function makeZoom() {
  const shade = svg('polygon');
  const options = { class: 'zoom', viewBox: '0 0 1000 10', preserveAspectRatio: 'none' };
  const node = svg('svg', { ...options, 'aria-hidden': 'true' }, shade);
  node.from = (above, below) => {
    setAttribute(shade, 'points', `0,0 ${above * 1000},0 ${below * 1000},10 0,10`);
  };
  return node;
}

function kindOf(device, lanes) {
  const driver = device.driver && device.driver !== 'host' ? `${device.driver} ` : '';
  const kind = device.kind === 'cpu' ? 'host' : `${driver}${device.kind.toUpperCase()}`;
  const words = [device.description ?? kind];
  if (device.physical && device.physical !== device.name) words.push(`on ${device.physical}`);
  words.push(plural(device.models.length, 'version'));
  if (lanes?.length > 0) {
    const busy = lanes.reduce((sum, one) => sum + one, 0) / lanes.length;
    words.push(`${plural(lanes.length, 'lane')} ${percent(busy)} busy`);
  }
  return words.join(' · ');
}

function drawLimit(bar, fill, device, scale) {
  const width = scale === null ? 1 : device.limit_bytes / scale;
  bar.style.width = `${Math.max(width * 100, 0.4).toFixed(3)}%`;
  const share = (n) => Math.min(1, n / device.limit_bytes);
  const used = share(device.in_use_bytes);
  const held = share(device.reserved_bytes);
  const promised = Math.min(share(device.promised_bytes ?? 0), 1 - held);
  fill.used.style.width = `${(Math.min(used, held) * 100).toFixed(3)}%`;
  fill.idle.style.width = `${(Math.max(0, held - used) * 100).toFixed(3)}%`;
  fill.promised.style.width = `${(promised * 100).toFixed(3)}%`;
  const { lines, title, size } = limitWords(device);
  setAttribute(bar, 'aria-label', [title, size, ...lines].join('. '));
  return held * width;
}

function limitWords(device) {
  const free = device.limit_bytes - device.reserved_bytes;
  const lines = [
    `In use ${bytes(device.in_use_bytes)} (${exact(device.in_use_bytes)}), at most so far ${bytes(device.peak_in_use_bytes)}.`,
    `Not held: ${bytes(free)} (${exact(free)}).`,
  ];
  if (device.promised_bytes > 0) {
    lines.push(`Promised to loads and runs, and not held yet: ${bytes(device.promised_bytes)}.`);
  }
  if (device.others_bytes > 0) lines.push(`Held by other programs: ${bytes(device.others_bytes)}.`);
  const size = `${bytes(device.reserved_bytes)} held of ${bytes(device.limit_bytes)} (${exact(device.limit_bytes)})`;
  return { title: `${device.name} up to its limit`, size, lines };
}

/** Draws pieces, and gives the share of the full width that they take. */
function drawPieces(bar, device, all, scale) {
  const total = all.reduce((sum, group) => sum + group.bytes, 0);
  const full = scale ?? Math.max(total, 1);
  const pixels = bar.parentNode.clientWidth || 600;
  const shown = drawn(all, (full / pixels) * PIECE_PIXELS_MIN);
  keyed(bar, shown, (group) => group.key, makeGroup, (node, group) => {
    const share = group.bytes / full;
    node.style.width = `${(share * 100).toFixed(4)}%`;
    node.drawGroup(group, device);
    setText(node.label, group.name);
    show(node.label, share * pixels >= NAME_PIXELS_MIN);
  });
  const pieces = [...bar.querySelectorAll('.piece')];
  if (!pieces.some((piece) => piece.tabIndex === 0) && pieces.length > 0) pieces[0].tabIndex = 0;
  return total / full;
}

function makeGroup() {
  const row = el('div', { class: 'group-pieces' });
  const label = el('span', { class: 'group-name', 'aria-hidden': 'true' });
  const node = el('div', { class: 'group' }, row, label);
  node.label = label;
  node.drawGroup = (group, device) => {
    setAttribute(node, 'data-kind', group.of.kind);
    keyed(row, group.pieces, (piece) => piece.key, makePiece, (one, piece) => {
      Object.assign(one, { piece, device });
      one.style.flexGrow = String(piece.bytes / group.bytes);
      setAttribute(one, 'class', `piece of-${piece.category}`);
      setAttribute(one, 'data-bytes', piece.bytes);
      setAttribute(one, 'data-category', piece.category);
      setAttribute(one, 'data-holder', piece.holder);
      const { title, size, lines } = describe(piece, device);
      setAttribute(one, 'aria-label', [title, size, ...lines].join('. '));
    });
  };
  return node;
}

function makePiece() {
  const node = el('button', { type: 'button', tabindex: '-1' });
  withTip(node, () => describe(node.piece, node.device));
  return node;
}

/** One stop of the Tab key a bar; arrows go from piece to piece. */
function moveFocus(bar, event) {
  const pieces = [...bar.querySelectorAll('.piece')];
  const at = pieces.indexOf(document.activeElement);
  const last = pieces.length - 1;
  const next = {
    ArrowRight: Math.min(at + 1, last), ArrowLeft: Math.max(at - 1, 0), Home: 0, End: last,
  }[event.key];
  if (next === undefined || at < 0) return;
  event.preventDefault();
  pieces[at].tabIndex = -1;
  pieces[next].tabIndex = 0;
  pieces[next].focus();
}

function drawLegend(legend, device) {
  const make = ([category]) => {
    const size = el('span', { class: 'legend-size' });
    const name = el('span', {}, categoryName(category));
    const node = el('li', {}, el('i', { class: `swatch of-${category}` }), name, size);
    node.size = size;
    setAttribute(node, 'title', CATEGORIES[category]?.[1] ?? category);
    return node;
  };
  const free = ['free', Math.max(0, device.limit_bytes - device.reserved_bytes)];
  keyed(legend, [...totals(device), free], ([category]) => category, make, (node, [category, n]) => {
    setText(node.size, bytes(n));
    setAttribute(node.size, 'title', exact(n));
    setAttribute(node, 'data-category', category);
    setAttribute(node, 'data-bytes', n);
  });
}

function whyList() {
  const rows = ['held', 'limit'].map((kind) => {
    const text = el('span', { class: 'why-text' });
    const line = command();
    const node = el('p', { class: 'why', dataset: { kind } }, text, el('span', { class: 'why-change' }, 'Change it: ', line));
    return { kind, text, line, node };
  });
  const node = el('div', { class: 'device-why' }, ...rows.map((row) => row.node));
  const draw = (device, about) => {
    for (const row of rows) {
      const { why, line } = row.kind === 'held' ? heldOf(device, about) : limitOf(device, about);
      setText(row.text, why);
      row.line.setLine(line);
    }
  };
  return { node, draw };
}

/** The memory of the process, in a line. */
export function processLine(memory) {
  const { resident_bytes: resident, heap } = memory;
  const words = [];
  if (resident) words.push(`process ${bytes(resident)} resident`);
  if (heap?.allocated_bytes) words.push(`heap ${bytes(heap.allocated_bytes)} allocated`);
  const n = memory.workers?.length ?? 0;
  if (n > 0) words.push(`${count(n)} TensorFlow ${n === 1 ? 'worker' : 'workers'}`);
  return words.join(' · ');
}
