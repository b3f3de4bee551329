// Why memory is held, and the exact line that changes it. The page only shows these lines.

import { bytes, configSize } from './units.js';
import { categoryName, idle, totals } from './pieces.js';

/** A word of a shell's command line. */
function quoted(word) {
  return `'${word.replaceAll("'", `'\\''`)}'`;
}

/** A call of `curl` to the management address; `null` if the server has none. */
function curl(about, method, path, body) {
  if (!about?.management) return null;
  const unix = about.management.startsWith('unix:') ? about.management.slice(5) : null;
  const host = unix === null ? about.management : 'localhost';
  const socket = unix === null ? '' : ` --unix-socket ${quoted(unix)}`;
  const type = body ? ` -H 'Content-Type: application/json'` : '';
  const content = body ? ` -d ${quoted(JSON.stringify(body))}` : '';
  const url = /[^\w.:/-]/.test(path) ? quoted(`http://${host}${path}`) : `http://${host}${path}`;
  return `curl -X ${method}${socket}${type}${content} ${url}`;
}

function setBy(setting) {
  return !setting || setting === 'default' ? 'the default' : setting;
}

/** Why a device has its limit, and the line that gives it another. */
export function limitOf(device, about) {
  const why = `The limit is ${bytes(device.limit_bytes)}, from ${setBy(device.limit_setting)}.`;
  const half = configSize(device.limit_bytes / 2);
  const body = { device: [{ name: device.physical ?? device.name, memory_limit: half }] };
  const line = curl(about, 'PUT', '/v1/devices', body);
  return { why, line: line ?? `device { name: "${device.physical}" memory_limit: "${half}" }` };
}

/** Why a device holds what it holds, and the line that makes it hold less. */
export function heldOf(device, about) {
  const held = device.reserved_bytes;
  const used = device.in_use_bytes;
  const largest = totals(device).sort(([, a], [, b]) => b - a)[0];
  const most = largest ? `, most of it ${categoryName(largest[0]).toLowerCase()}` : '';
  const facts = `Holds ${bytes(held)}${most}; ${bytes(used)} in use.`;
  if (device.growth === 'reserved') {
    const why = `${facts} Memory is reserved up to the limit (${setBy(device.growth_setting)}).`;
    return { why, line: '--gpu_memory=grow' };
  }
  const growth = `Memory grows as models need it (${setBy(device.growth_setting)}).`;
  const why = [facts, idle(device), growth].filter(Boolean).join(' ');
  return { why, line: release(device, about) };
}

/** The line that makes a device hold less: idle memory goes back, else the largest model goes. */
function release(device, about) {
  const kept = (device.idle ?? []).some(({ bytes: n, kind, reason }) => {
    return n > 0 && (kind === 'kept' || reason.startsWith('kept'));
  });
  const [largest] = [...device.models].sort((a, b) => b.bytes - a.bytes);
  if (kept || !largest) return curl(about, 'POST', '/v1/memory:trim') ?? '--gpu_memory=grow';
  return unload(largest.name, about) ?? `memory { limit: "${configSize(largest.bytes / 2)}" }`;
}

function unload(name, about) {
  return curl(about, 'DELETE', `/v1/models/${encodeURIComponent(name)}`);
}

/** Why a version holds memory, and the lines that change it. */
export function versionOf({ name, version, holdings, state }, about) {
  const total = holdings.reduce((sum, holding) => sum + holding.bytes, 0);
  if (total === 0) {
    return { why: `Version ${version} (${state.toLowerCase()}) holds no memory.`, lines: [] };
  }
  const where = holdings.map((holding) => `${bytes(holding.bytes)} on ${holding.device}`);
  const plan = Math.max(...holdings.map((holding) => holding.largest_plan_bytes ?? 0));
  const run = plan > 0 ? ` A run needs up to ${bytes(plan)} of a lane’s memory.` : '';
  const why = `Held because version ${version} is served: ${where.join(', ')}.${run}`;
  const limit = configSize(Math.max(...holdings.map((holding) => holding.bytes)) + 2 ** 20);
  const remove = unload(name, about);
  const lines = [
    { does: 'Limit it, in the model’s config', line: `memory { limit: "${limit}" }` },
  ];
  if (remove) {
    lines.push({ does: 'Unload it (where --model_roots is set)', line: remove });
  }
  return { why, lines };
}
