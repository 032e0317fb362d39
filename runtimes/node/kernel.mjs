/* kernel.mjs - the Node kernel of a context: `node kernel.mjs`, with the kernel socket on fd 3.
 *
 * Cells are evaluated by V8's own REPL mode, through an inspector session inside this process. The
 * console of a browser uses the same mode, so `await`, and const, let and class that persist and
 * can be declared again, are implemented by V8 without rewriting the code. Cells share the context
 * of the modules that they require; a separate context would have another Array and another Error.
 *
 * Interrupts. The part of a cell up to its first await runs inside a vm script that SIGINT
 * terminates, loops included. A cell that awaits is abandoned. A loop after an await can only be
 * ended by the server, which kills the kernel.
 *
 * Loading these modules changes nothing outside of them and uses no value that differs between
 * processes. So snapshot.mjs can load them once, and a process starts from the resulting memory.
 * start() creates the state of a process. */
import inspector from 'node:inspector';
import v8 from 'node:v8';

import { Complete } from './complete.mjs';
import { Interrupted, begin, install as installInterrupt, interruptible, watch } from './interrupt.mjs';
import { importAt, metaAt, requireAt } from './modules.mjs';
import { install as installOutput } from './output.mjs';
import { rewrite } from './rewrite.mjs';
import { bundleOf, display, isSilent, textOf } from './show.mjs';
import { Wire, cleanText } from './wire.mjs';

const LINES_MAX = 400;
const LINE_TEXT_MAX = 2000;
const VALUE_MAX = 64 << 10;
const REQUESTS_MAX = 256;
const HERE = new URL('.', import.meta.url).href;

class Exit extends Error {
  constructor(code) {
    super(String(code ?? process.exitCode ?? 0));
    this.name = 'Exit';
  }
}

/* Whether env and cwd of a request can be used. */
function isOverride({ env, cwd }) {
  const isMap = typeof env === 'object' && env !== null && Object.values(env).every((value) => typeof value === 'string');
  return (env === undefined || isMap) && (cwd === undefined || typeof cwd === 'string');
}

class Kernel {
  constructor(fd, note) {
    this.inspector = new inspector.Session();
    this.inspector.connect();
    this.count = 0;
    this.id = null; /* of the running execution */
    this.waiting = null; /* resolves an input() */
    this.pieces = []; /* of the line that it waits for */
    this.requests = [];
    this.busy = false;
    this.completer = new Complete((method, params) => this.call(method, params), (answer) => this.value(answer));
    this.setUpProcess();
    this.wire = new Wire(fd, (request) => this.receive(request), () => process.reallyExit(0));
    this.start = { cwd: process.cwd(), env: { ...process.env }, globals: Object.getOwnPropertyDescriptors(globalThis) };
    this.wire.send({ event: 'ready', language: 'node', version: process.versions.node, protocol: 1, ...(note ? { note } : {}) });
  }

  setUpProcess() {
    const hidden = (name, value) => Object.defineProperty(globalThis, name, { value, writable: true, configurable: true, enumerable: false });
    hidden('require', requireAt);
    hidden('module', { exports: {} });
    hidden('exports', globalThis.module.exports);
    hidden('__coveImport', importAt);
    Object.defineProperty(globalThis, '__coveMeta', { get: metaAt, configurable: true });
    Object.defineProperty(globalThis, '__dirname', { get: () => process.cwd(), configurable: true });
    hidden('display', display((bundle) => this.show(bundle)));
    hidden('input', (prompt = '', options = {}) => this.ask(prompt, options?.password === true));
    installOutput();
    process.exit = (code) => { throw new Exit(code); };
    const complain = (error) => process.stderr.write(`Uncaught ${this.lines(error).join('\n')}\n`);
    process.on('uncaughtException', complain);
    process.on('unhandledRejection', complain);
  }

  /* V8. */

  /* A request to the inspector that is answered synchronously. */
  call(method, params) {
    let answer;
    this.inspector.post(method, params, (error, result) => { answer = { error, result }; });
    if (answer?.error) throw new Error(answer.error.message);
    return answer?.result;
  }

  /* The value itself for a remote object of the inspector. */
  value(remote) {
    if (remote.objectId) {
      let taken;
      Object.defineProperty(globalThis, '__coveTake', { value: (v) => { taken = v; }, configurable: true });
      this.call('Runtime.callFunctionOn', {
        objectId: remote.objectId, arguments: [{ objectId: remote.objectId }], functionDeclaration: 'function(v) { globalThis.__coveTake(v); }',
      });
      delete globalThis.__coveTake;
      return taken;
    }
    if (remote.unserializableValue !== undefined) {
      const text = remote.unserializableValue;
      return text.endsWith('n') ? BigInt(text.slice(0, -1)) : Number(text);
    }
    return remote.type === 'undefined' ? undefined : remote.value;
  }

  /* The answer of the inspector when the cell has ended, or an exception of the kernel. */
  async evaluate(expression) {
    const params = { expression, replMode: true, awaitPromise: true, objectGroup: 'cell', silent: true };
    let unwatch = () => {};
    begin();
    try {
      return await new Promise((resolve, reject) => {
        interruptible(() => {
          this.inspector.post('Runtime.evaluate', params, (error, result) => (error ? reject(new Error(error.message)) : resolve(result)));
        });
        unwatch = watch(() => reject(new Interrupted()));
      });
    } finally {
      unwatch();
    }
  }

  /* Events. */

  send(event, fields) {
    this.wire.send({ event, id: this.id, ...fields });
  }

  show(bundle) {
    if (this.id === null) process.stdout.write(`${bundle.data['text/plain'] ?? ''}\n`);
    else this.send('display', bundle);
  }

  ask(prompt, password) {
    if (this.id === null || this.waiting) return Promise.resolve(null);
    return new Promise((resolve) => {
      this.waiting = resolve;
      this.send('input', { prompt: cleanText(String(prompt)).slice(0, VALUE_MAX), password });
    });
  }

  /* The lines of an error, without frames of the kernel. */
  lines(error) {
    let text;
    try {
      text = error instanceof Error || typeof error?.stack === 'string' ? String(error.stack) : `Uncaught ${textOf(error)}`;
    } catch {
      text = 'an error whose stack cannot be read';
    }
    let lines = text.split('\n');
    const ours = lines.findIndex((line) => /^\s+at /.test(line) && (line.includes(HERE) || line.includes('node:inspector')));
    if (ours >= 0) {
      /* Frames below the cell show how the kernel called it; frames above those of the kernel are
       * those of display() and similar functions. */
      const cells = lines.slice(ours).findIndex((line) => /cell-\d+\.js:\d/.test(line));
      lines = cells < 0 ? lines.slice(0, ours) : lines.filter((line) => !/^\s+at /.test(line) || /cell-\d+\.js:\d/.test(line));
    }
    if (lines.length > LINES_MAX) lines = [...lines.slice(0, LINES_MAX / 2), `    ... ${lines.length - LINES_MAX} lines left out`, ...lines.slice(-LINES_MAX / 2)];
    return lines.map((line) => (line.length > LINE_TEXT_MAX ? `${line.slice(0, LINE_TEXT_MAX)}...` : line));
  }

  report(error, place) {
    const told = { name: 'Error', value: '', traceback: [] };
    try {
      interruptible(() => {
        if (error instanceof Error || (typeof error === 'object' && error !== null && 'message' in error)) {
          told.name = String(error.name || 'Error');
          told.value = String(error.message);
        } else {
          told.name = 'Uncaught';
          told.value = textOf(error);
        }
        told.traceback = [...place, ...this.lines(error)];
      });
    } catch {
      told.traceback = [...place, 'an error that cannot be shown'];
    }
    if (told.value.length > VALUE_MAX) told.value = `${told.value.slice(0, VALUE_MAX)}... cut here: ${told.value.length} characters`;
    this.send('error', { name: cleanText(told.name).slice(0, 500), value: cleanText(told.value), traceback: told.traceback.map(cleanText) });
  }

  /* Where in the cell an exception was raised: its line, and a mark under the position. */
  place(details, error, name, code) {
    let found = null;
    try {
      found = new RegExp(`${name.replace('.', '\\.')}:(\\d+):(\\d+)`).exec(String(error?.stack));
    } catch { /* the stack of user code may throw */ }
    const [line, column] = found ? [Number(found[1]) - 1, Number(found[2]) - 1] : [details.lineNumber, details.columnNumber];
    const text = code.split('\n')[line];
    if ((!found && !(error instanceof SyntaxError)) || text === undefined || text.length > 500) return [];
    return [`${name}:${line + 1}`, text, `${' '.repeat(Math.max(column, 0))}^`, ''];
  }

  /* Requests. */

  receive(request) {
    const { op, id } = request;
    if (op === 'input') return this.answer(request);
    if (['execute', 'complete', 'inspect'].includes(op) && typeof request.code !== 'string') return this.wire.refuse('code is not a string', id);
    if (!['execute', 'complete', 'inspect', 'reset'].includes(op)) return this.wire.refuse('no such op', id);
    if (op === 'execute' && !isOverride(request)) return this.wire.refuse('env is not a map of strings, or cwd is not a string', id);
    if (op === 'complete' || op === 'inspect') {
      const length = [...request.code].length;
      if (!Number.isInteger(request.cursor) || request.cursor < 0 || request.cursor > length) return this.wire.refuse('cursor is not a place in the code', id);
    }
    if (this.requests.length >= REQUESTS_MAX) return this.wire.refuse('too many requests wait', id);
    this.requests.push(request);
    return this.next();
  }

  /* Handles one request at a time, each from the event loop: an interrupt may drop pending
   * promises, and with them a promise chain of the kernel. */
  next() {
    if (this.busy || !this.requests.length) return;
    this.busy = true;
    setImmediate(async () => {
      const request = this.requests.shift();
      try {
        await this[request.op](request);
      } catch (error) {
        process.stderr.write(`kernel: ${error?.stack}\n`);
      }
      this.busy = false;
      this.next();
    });
  }

  answer({ id, text, eof, more }) {
    if (!this.waiting || id !== this.id) return this.wire.refuse('no execution waits for input', id);
    if (eof !== true && typeof text !== 'string') return this.wire.refuse('text is not a string', id);
    if (eof !== true) this.pieces.push(text);
    if (eof !== true && more === true) return this.send('input', { prompt: '', password: false });
    const resolve = this.waiting;
    const line = eof === true && this.pieces.length === 0 ? null : this.pieces.join('');
    this.waiting = null;
    this.pieces = [];
    return resolve(line);
  }

  async execute({ id, code, env = {}, cwd = null }) {
    this.id = id;
    this.count += 1;
    this.send('started', { count: this.count });
    const name = `cell-${this.count}.js`;
    let status = 'ok';
    const former = { env: Object.keys(env).map((key) => [key, process.env[key]]), cwd: cwd === null ? null : this.directory() };
    try {
      if (cwd !== null) process.chdir(cwd);
      Object.assign(process.env, env);
      const answer = await this.evaluate(`${rewrite(code)}\n//# sourceURL=${name}`);
      if (answer.exceptionDetails) {
        status = 'error';
        const details = answer.exceptionDetails;
        const error = details.exception ? this.value(details.exception) : new Error(details.text);
        this.report(error, this.place(details, error, name, code));
      } else {
        this.result(this.value(answer.result));
      }
    } catch (error) {
      status = error instanceof Interrupted ? 'interrupted' : 'error';
      this.report(error, []);
    }
    this.restore(former);
    this.waiting = null;
    this.inspector.post('Runtime.releaseObjectGroup', { objectGroup: 'cell' });
    this.send('finished', { status });
    this.id = null;
  }

  directory() {
    try {
      return process.cwd();
    } catch {
      return this.start.cwd; /* it was removed */
    }
  }

  /* Restores the environment and the directory that a cell changed for itself only. */
  restore({ env, cwd }) {
    try {
      for (const [key, value] of env) {
        if (value === undefined) delete process.env[key];
        else process.env[key] = value;
      }
      if (cwd !== null) process.chdir(cwd);
    } catch { /* the cell replaced process.env, or removed the directory */ }
  }

  result(value) {
    if (value === undefined || isSilent(value)) return;
    globalThis._ = value;
    let bundle;
    interruptible(() => { bundle = bundleOf(value); });
    this.send('result', { count: this.count, ...bundle });
  }

  complete({ id, code, cursor }) {
    let found = { matches: [], start: cursor, end: cursor };
    try {
      interruptible(() => { found = this.completer.complete(code, cursor); });
    } catch { /* raised by a proxy of user code, or interrupted: no result */ }
    this.wire.send({ event: 'completions', id, ...found });
  }

  inspect({ id, code, cursor }) {
    let found = { found: false, data: {} };
    try {
      interruptible(() => { found = this.completer.inspect(code, cursor); });
    } catch { /* as above */ }
    this.wire.send({ event: 'inspection', id, ...found });
  }

  /* As after a restart, but in the same process. Declared names cannot be removed from V8; they
   * become undefined. Running timers and servers continue. */
  async reset({ id }) {
    this.id = id;
    let status = 'ok';
    try {
      const names = this.call('Runtime.globalLexicalScopeNames', {}).names;
      for (const name of new Set(names)) {
        const answer = await this.evaluate(`let ${name} = undefined;`);
        /* a const can only be declared again as a const */
        if (answer.exceptionDetails) await this.evaluate(`const ${name} = undefined;`);
      }
      for (const key of Reflect.ownKeys(globalThis)) {
        if (!(key in this.start.globals) && !Reflect.deleteProperty(globalThis, key)) globalThis[key] = undefined;
      }
      for (const key of Reflect.ownKeys(this.start.globals)) Reflect.defineProperty(globalThis, key, this.start.globals[key]);
      globalThis.module = { exports: {} };
      globalThis.exports = globalThis.module.exports;
      for (const path of Object.keys(requireAt.cache)) delete requireAt.cache[path];
      for (const name of Object.keys(process.env)) if (!(name in this.start.env)) delete process.env[name];
      Object.assign(process.env, this.start.env);
      process.chdir(this.start.cwd);
    } catch (error) {
      status = error instanceof Interrupted ? 'interrupted' : 'error';
    }
    this.count = 0;
    this.send('finished', { status });
    this.id = null;
  }
}

/* start.c passes the reason why it did not use the snapshot; cells must not see that argument. */
function start() {
  const [note] = process.argv.splice(2);
  installInterrupt();
  return new Kernel(3, note);
}

if (v8.startupSnapshot?.isBuildingSnapshot()) v8.startupSnapshot.setDeserializeMainFunction(start);
else start();
