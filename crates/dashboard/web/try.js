// The form that tries a prediction: a sample body made from the signature, sent to the real URL.

import { el, keyed, setText, show } from './dom.js';
import { headers } from './poll.js';
import { sample, verb } from './sample.js';
import { bytes, micros } from './units.js';

/** The most characters of an answer that are shown. */
const ANSWER_MAX = 100000;

/** How many models are looked at to find one to begin with. */
const CHOICES_MAX = 6;

export class TryForm {
  constructor(form) {
    this.form = form;
    this.model = form.querySelector('#try-model');
    this.signature = form.querySelector('#try-signature');
    this.body = form.querySelector('#try-body');
    this.note = form.querySelector('#try-note');
    this.curl = form.querySelector('#try-curl');
    this.status = form.querySelector('#try-status');
    this.answer = form.querySelector('#try-answer');
    this.send = form.querySelector('#try-send');
    this.signatures = {};
    this.model.addEventListener('change', () => {
      this.isChoosing = false;
      this.loadSignatures();
    });
    this.signature.addEventListener('change', () => this.fill());
    this.body.addEventListener('input', () => this.showCurl());
    form.addEventListener('submit', (event) => {
      event.preventDefault();
      this.submit();
    });
  }

  /** Offers the versions that can answer. */
  offer(rows) {
    const targets = rows.filter((row) => row.state === 'AVAILABLE');
    const before = this.model.value;
    const make = (row) => el('option', { value: row.id }, row.id);
    keyed(this.model, targets, (row) => row.id, make, (node, row) => {
      node.target = row;
    });
    show(this.form, targets.length > 0);
    if (targets.length === 0) return;
    if (this.loaded === undefined) this.choose(targets);
    else if (before !== this.model.value || this.loaded === null) this.loadSignatures();
  }

  /** Chooses a model to begin with: one that takes numbers, whose sample it will answer. */
  async choose(targets) {
    this.loaded = null;
    this.isChoosing = true;
    for (const { id } of targets.slice(0, CHOICES_MAX)) {
      if (!this.isChoosing) return;
      this.model.value = id;
      await this.loadSignatures();
      if (takesNumbers(this.signatures[this.signature.value])) break;
    }
    this.isChoosing = false;
  }

  /** The path of the chosen version, for a call or a page. */
  path() {
    const { name, version } = this.model.selectedOptions[0].target;
    return `v1/models/${encodeURIComponent(name)}/versions/${version}`;
  }

  async loadSignatures() {
    if (this.model.selectedOptions.length === 0) return;
    this.loaded = this.model.value;
    const wanted = this.loaded;
    let signatures = {};
    try {
      const answer = await fetch(`${this.path()}/metadata`, { headers: headers() });
      const page = await answer.json();
      setText(this.note, answer.ok ? '' : page.error ?? answer.statusText);
      signatures = page.metadata?.signature_def?.signature_def ?? {};
    } catch (error) {
      setText(this.note, String(error));
      this.loaded = null;
    }
    if (wanted !== this.model.value) return;
    this.signatures = signatures;
    const names = Object.keys(signatures).filter((name) => !name.startsWith('__')).sort(defaultFirst);
    keyed(this.signature, names, (name) => name, (name) => el('option', { value: name }, name), () => {});
    if (names.length > 0) this.signature.value = names[0];
    this.fill();
  }

  fill() {
    const name = this.signature.value;
    const chosen = this.signatures[name];
    if (!chosen) return;
    const { body, problem } = sample(name, chosen);
    this.body.value = body ?? '';
    setText(this.note, problem ?? inputsLine(chosen));
    this.showCurl();
  }

  url() {
    const chosen = this.signatures[this.signature.value] ?? {};
    return new URL(`${this.path()}:${verb(chosen)}`, document.baseURI);
  }

  showCurl() {
    if (this.model.selectedOptions.length === 0) return;
    const body = this.body.value;
    const compact = body.length > 400 ? '@body.json' : body.replace(/\s*\n\s*/g, ' ').replaceAll("'", `'\\''`);
    setText(this.curl, `curl -d '${compact}' '${this.url()}'`);
  }

  async submit() {
    this.send.disabled = true;
    setText(this.status, 'Waiting for the answer …');
    const start = performance.now();
    try {
      const options = { method: 'POST', body: this.body.value };
      const type = { 'Content-Type': 'application/json' };
      const answer = await fetch(this.url(), { ...options, headers: { ...type, ...headers() } });
      const text = await answer.text();
      const took = (performance.now() - start) * 1000;
      this.showAnswer(answer, text, took);
    } catch (error) {
      setText(this.status, `No answer: ${error}`);
      setText(this.answer, '');
    }
    this.send.disabled = false;
  }

  showAnswer(answer, text, took) {
    const size = bytes(new Blob([text]).size);
    setText(this.status, `${answer.status} ${answer.statusText} · ${micros(took)} · ${size}`);
    this.status.classList.toggle('bad', !answer.ok);
    const rest = text.length - ANSWER_MAX;
    setText(this.answer, rest > 0 ? `${text.slice(0, ANSWER_MAX)}\n… ${rest} more characters` : text);
  }
}

function takesNumbers(signature) {
  const inputs = Object.values(signature?.inputs ?? {});
  return inputs.length > 0 && inputs.every((input) => input.dtype !== 'DT_STRING');
}

function defaultFirst(a, b) {
  const isDefault = (name) => (name === 'serving_default' ? 0 : 1);
  return isDefault(a) - isDefault(b) || (a < b ? -1 : 1);
}

/** The inputs and outputs of a signature in a line, as the signature has them. */
function inputsLine({ inputs = {}, outputs = {} }) {
  const one = ([name, { dtype = '', tensor_shape: shape = {} }]) => {
    const dims = (shape.dim ?? []).map(({ size }) => (Number(size) < 0 ? '?' : size));
    const sizes = shape.unknown_rank ? 'any shape' : `[${dims.join(', ')}]`;
    return `${name} ${dtype.replace('DT_', '').toLowerCase()} ${sizes}`;
  };
  const list = (all) => Object.entries(all).map(one).join(', ');
  return `Takes ${list(inputs) || 'nothing'}. Gives ${list(outputs) || 'nothing'}.`;
}
