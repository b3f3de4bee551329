// The box that says what a piece is, under the pointer or the focus.

import { el, keyed, setText } from './dom.js';

const title = el('strong');
const size = el('span', { class: 'tip-size' });
const lines = el('div', { class: 'tip-lines' });
const box = el('div', { class: 'tip', role: 'tooltip', id: 'tip', hidden: true }, title, size, lines);
let owner = null;

/** Shows the box for an element while it is pointed at or focused; `text()` gives its words. */
export function withTip(node, text) {
  const open = () => openFor(node, text);
  node.addEventListener('pointerenter', open);
  node.addEventListener('focus', open);
  node.addEventListener('pointerleave', () => owner === node && rest(node));
  node.addEventListener('blur', () => owner === node && close());
  node.tipText = text;
}

/** Puts the box into the page, which Escape closes. */
export function startTips() {
  document.body.append(box);
  document.addEventListener('keydown', (event) => event.key === 'Escape' && close());
  addEventListener('scroll', () => owner && place(), { passive: true });
}

/** Writes the words anew, if the box is open, since what they say may have changed. */
export function refreshTip() {
  if (owner && !owner.isConnected) close();
  else if (owner) openFor(owner, owner.tipText);
}

/** Where the pointer leaves, the focus may still be. */
function rest(node) {
  const focused = document.activeElement;
  if (focused?.tipText && focused !== node) openFor(focused, focused.tipText);
  else if (focused !== node) close();
}

function openFor(node, text) {
  const words = text();
  if (!words) return;
  if (owner !== node) owner?.removeAttribute('aria-describedby');
  owner = node;
  setText(title, words.title);
  setText(size, words.size ?? '');
  keyed(lines, words.lines ?? [], (line, at) => at, () => el('p'), setText);
  box.hidden = false;
  node.setAttribute('aria-describedby', 'tip');
  place();
}

function close() {
  owner?.removeAttribute('aria-describedby');
  owner = null;
  box.hidden = true;
}

function place() {
  const at = owner.getBoundingClientRect();
  const { width, height } = box.getBoundingClientRect();
  const left = Math.min(Math.max(8, at.left + at.width / 2 - width / 2), innerWidth - width - 8);
  const below = at.bottom + 8;
  const top = below + height > innerHeight - 8 ? Math.max(8, at.top - height - 8) : below;
  box.style.left = `${Math.max(8, left)}px`;
  box.style.top = `${top}px`;
}
