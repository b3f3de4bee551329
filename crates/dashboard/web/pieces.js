// The pieces of a device's memory: who holds how much for what. Pure functions of the memory page.

import { bytes, exact, plural } from './units.js';

/** The categories in the order they are drawn, with their names and what they are. */
export const CATEGORIES = {
  weights: ['Weights', 'as the checkpoint has them'],
  packed_weights: ['Packed weights', 'in the order that kernels read them'],
  plans: ['Plans', 'compiled plans and the values kept with them'],
  activations: ['Activations', 'tensors between the steps of a run'],
  workspace: ['Scratch', 'the most that a kernel of these plans uses for itself'],
  requests: ['Requests', 'tensors and messages of requests and answers of this moment'],
  context: ['Driver', 'what the driver or a TensorFlow worker takes for itself'],
  fragmentation: ['Fragmentation', 'lost to alignment and between chunks'],
  reserve: ['Reserve', 'held, and not in use'],
};

/** The name of a category. */
export function categoryName(category) {
  return CATEGORIES[category]?.[0] ?? category;
}

const ORDER = Object.keys(CATEGORIES);

function rank(category) {
  const at = ORDER.indexOf(category);
  return at < 0 ? ORDER.length : at;
}

function sorted(categories) {
  const entries = Object.entries(categories ?? {}).filter(([, n]) => n > 0);
  return entries.sort(([a], [b]) => rank(a) - rank(b));
}

/** The bytes of each category of a device, in order. */
export function totals(device) {
  return sorted(device.categories);
}

/**
 * The holders of a device's memory, each with its pieces: models by size, then what several of them
 * share, then the server. The pieces sum to what the device holds.
 */
export function groups(device) {
  const left = { ...device.categories };
  const groups = [];
  const add = (key, name, categories, of) => {
    const pieces = sorted(categories).map(([category, n]) => {
      left[category] = (left[category] ?? 0) - n;
      return { key: `${key}/${category}`, holder: name, category, bytes: n, of };
    });
    const total = pieces.reduce((sum, piece) => sum + piece.bytes, 0);
    if (total > 0) groups.push({ key, name, bytes: total, pieces, of });
  };
  const models = [...device.models].sort((a, b) => b.bytes - a.bytes || compare(a, b));
  for (const model of models) {
    const id = `${model.name}:${model.version}`;
    add(`model ${id}`, id, model.categories, { kind: 'model', model });
  }
  const server = device.server?.categories ?? {};
  // What is neither a model's nor the server's is shared by versions, or a worker's.
  const rest = {};
  for (const [category, n] of Object.entries(left)) {
    const beyond = n - (server[category] ?? 0);
    if (beyond > 0) rest[category] = beyond;
  }
  const isWorker = device.engine === 'tensorflow';
  add('shared', isWorker ? 'TensorFlow' : 'shared', rest, { kind: isWorker ? 'worker' : 'shared' });
  add('server', 'server', server, { kind: 'server' });
  return groups;
}

function compare(a, b) {
  return a.name < b.name ? -1 : a.name > b.name ? 1 : a.version - b.version;
}

/** If more of the held memory than this is idle, what is in use is enlarged once more. */
const IDLE_SHARE_MAX = 0.6;

const isIdle = ({ category }) => category === 'reserve' || category === 'fragmentation';

/**
 * The bars of a device: `held` has all that is held; `used` enlarges what is in use, where that is
 * too little to be seen beside the reserve, and is `null` elsewhere.
 */
export function levels(device) {
  const all = groups(device);
  const held = sum(all);
  const idleGroups = only(all, isIdle);
  const used = only(all, (piece) => !isIdle(piece));
  if (sum(idleGroups) <= IDLE_SHARE_MAX * held || used.length === 0) return { held: all, used: null };
  const parts = used.flatMap((group) => group.pieces).sort((a, b) => b.bytes - a.bytes);
  const whole = { key: 'used', holder: 'in use', category: 'used', bytes: sum(used), parts };
  const of = { kind: 'used' };
  const joint = { key: 'used', name: 'in use', bytes: sum(used), pieces: [{ ...whole, of }], of };
  return { held: [joint, ...idleGroups], used };
}

/** The groups with some of their pieces. */
function only(all, isWanted) {
  const some = all.map((group) => {
    const pieces = group.pieces.filter(isWanted);
    return { ...group, pieces, bytes: pieces.reduce((n, piece) => n + piece.bytes, 0) };
  });
  return some.filter((group) => group.bytes > 0);
}

function sum(all) {
  return all.reduce((n, group) => n + group.bytes, 0);
}

/**
 * The groups as they are drawn: pieces narrower than `least` bytes are joined to one at the end of
 * the models, so that every piece can be pointed at and the bar stays to scale.
 */
export function drawn(all, least) {
  const shown = [];
  const small = [];
  for (const group of all) {
    const isWide = (piece) => piece.bytes >= least || piece.of.kind === 'used';
    const wide = group.pieces.filter(isWide);
    small.push(...group.pieces.filter((piece) => !isWide(piece)));
    if (wide.length > 0) {
      const total = wide.reduce((sum, piece) => sum + piece.bytes, 0);
      shown.push({ ...group, pieces: wide, bytes: total });
    }
  }
  if (small.length === 1) return all;
  if (small.length > 0) shown.splice(firstShared(shown), 0, joined(small));
  return shown;
}

function firstShared(shown) {
  const at = shown.findIndex((group) => group.of.kind !== 'model');
  return at < 0 ? shown.length : at;
}

function joined(small) {
  const total = small.reduce((sum, piece) => sum + piece.bytes, 0);
  const categories = new Set(small.map((piece) => piece.category));
  const category = categories.size === 1 ? [...categories][0] : 'small';
  const parts = [...small].sort((a, b) => b.bytes - a.bytes);
  const piece = { key: 'small', holder: 'small pieces', category, bytes: total, parts };
  const of = { kind: 'small' };
  return { key: 'small', name: 'small', bytes: total, pieces: [{ ...piece, of }], of };
}

/** How many of the joined pieces a text names. */
const NAMED_MAX = 6;

/** The title of a piece and sentences about it: what it is, and why it is held. */
export function describe(piece, device) {
  if (piece.parts) return describeParts(piece, device);
  const title = `${piece.holder} · ${categoryName(piece.category)}`;
  const size = `${bytes(piece.bytes)} (${exact(piece.bytes)}) of ${device.name}`;
  return { title, size, lines: [what(piece), why(piece, device)].filter(Boolean) };
}

function describeParts({ parts, bytes: total, of }, device) {
  const named = parts.slice(0, NAMED_MAX).map((part) => {
    return `${part.holder} ${categoryName(part.category).toLowerCase()} ${bytes(part.bytes)}`;
  });
  const rest = parts.length - named.length;
  const more = rest > 0 ? `, and ${rest} more` : '';
  const isUsed = of.kind === 'used';
  const how = isUsed ? 'Enlarged below.' : 'Too narrow to be drawn one by one.';
  return {
    title: isUsed ? 'In use' : plural(parts.length, 'small piece'),
    size: `${bytes(total)} (${exact(total)}) of ${device.name}`,
    lines: [`${named.join(', ')}${more}. ${how}`],
  };
}

function what({ category }) {
  const [name, text] = CATEGORIES[category] ?? [category, ''];
  return text ? `${name}: ${text}.` : '';
}

function why(piece, device) {
  const { category, of } = piece;
  if (category === 'reserve' || category === 'fragmentation') return idle(device);
  if (of.kind === 'model') return `Held until ${piece.holder} is unloaded.`;
  if (of.kind === 'worker') return 'Held by TensorFlow’s worker processes until they end.';
  if (of.kind === 'shared') {
    const { holders = [], saved_bytes: saved = 0 } = device.shared ?? {};
    const names = holders.slice(0, NAMED_MAX).map(({ name, version }) => `${name}:${version}`);
    const more = holders.length > names.length ? ` and ${holders.length - names.length} more` : '';
    const who = names.length > 0 ? `Equal weights of ${names.join(', ')}${more}, held once` : '';
    return who ? `${who}${saved > 0 ? `, which saves ${bytes(saved)}` : ''}.` : '';
  }
  if (category === 'activations' || category === 'workspace') return lanes(device);
  if (category === 'requests') return 'Held until the answers are sent.';
  return 'Held as long as the server runs.';
}

function lanes({ workspaces }) {
  if (!workspaces) return '';
  const { models = [] } = workspaces;
  const largest = models.reduce(
    (most, model) => (model.largest_plan_bytes > most.largest_plan_bytes ? model : most),
    { largest_plan_bytes: 0 },
  );
  const need = largest.largest_plan_bytes;
  const who = need > 0 ? `; ${largest.name}:${largest.version} needs most, ${bytes(need)}` : '';
  return `${plural(workspaces.lanes, 'lane')} share it among all models${who}.`;
}

/** Why bytes that nobody uses are still held. */
export function idle(device) {
  const reasons = (device.idle ?? []).filter((reason) => reason.bytes > 0);
  return reasons.map((reason) => `${bytes(reason.bytes)} idle: ${reason.reason}.`).join(' ');
}
