// Elements. Text of the server only ever becomes a text node: nothing here parses markup.

const SVG = 'http://www.w3.org/2000/svg';

/** An element with properties (`class`, `dataset`, `on…` handlers, attributes) and children. */
export function el(tag, properties = {}, ...children) {
  return dressed(document.createElement(tag), properties, children);
}

/** Likewise, of a drawing. */
export function svg(tag, properties = {}, ...children) {
  return dressed(document.createElementNS(SVG, tag), properties, children);
}

function dressed(node, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (name === 'class') node.setAttribute('class', value);
    else if (name === 'dataset') Object.assign(node.dataset, value);
    else if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, '');
    else if (value !== false && value !== null && value !== undefined) {
      node.setAttribute(name, value);
    }
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

/** Sets the text of an element, if it is another. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Sets an attribute, if it is another; `null` takes it away. */
export function setAttribute(node, name, value) {
  if (value === null) node.removeAttribute(name);
  else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value);
}

/** Shows or hides an element. */
export function show(node, isShown) {
  if (node.hidden === isShown) node.hidden = !isShown;
}

/**
 * Makes the children of `parent` those of `items`, in their order. The child of a key stays the
 * same element, so that focus and pointer stay where they are.
 */
export function keyed(parent, items, keyOf, make, update) {
  const known = parent.keyedChildren ?? new Map();
  const next = new Map();
  let place = parent.firstChild;
  items.forEach((item, index) => {
    const key = keyOf(item, index);
    if (next.has(key)) return;
    const node = known.get(key) ?? make(item);
    next.set(key, node);
    update(node, item, index);
    if (node === place) place = place.nextSibling;
    else parent.insertBefore(node, place);
  });
  for (const [key, node] of known) {
    if (next.get(key) !== node) node.remove();
  }
  parent.keyedChildren = next;
}

/** A line of code with a button that copies it. */
export function command() {
  const code = el('code', { tabindex: '0' });
  const button = el('button', { type: 'button', class: 'copy', onclick: () => copy(code, button) });
  button.textContent = 'Copy';
  const node = el('span', { class: 'command' }, code, button);
  node.setLine = (line) => {
    setText(code, line);
    setAttribute(button, 'aria-label', `Copy: ${line}`);
  };
  return node;
}

async function copy(code, button) {
  try {
    await navigator.clipboard.writeText(code.textContent);
    button.textContent = 'Copied';
  } catch {
    // Browsers keep the clipboard from pages that came over plain HTTP: select the text instead.
    getSelection().selectAllChildren(code);
    button.textContent = 'Selected';
  }
  setTimeout(() => {
    button.textContent = 'Copy';
  }, 1500);
}
