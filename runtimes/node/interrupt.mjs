/* interrupt.mjs - SIGINT ends a cell, whatever it does.
 *
 * Node can terminate a script on SIGINT (vm, breakOnSigint): a thread of its own waits for the signal meanwhile. But that thread is
 * started and stopped with each script, and a signal that comes as it stops is lost, or ends the process, because no
 * handler is set. So it is started once and kept, by the functions that Node's own REPL uses; a signal that comes while no script runs
 * is remembered there, and looked for while a cell awaits. Without these functions we live with the gap.
 *
 * A listener of user code takes the signal from us until the next cell. */
import vm from 'node:vm';

const LOOK_MS = 20;

export class Interrupted extends Error {
  constructor() {
    super('the cell was interrupted');
    this.name = 'Interrupted';
    this.stack = 'Interrupted: the cell was interrupted';
  }
}

function watchdogOfNode() {
  try {
    const found = process.binding('contextify');
    return typeof found.startSigintWatchdog === 'function' && typeof found.stopSigintWatchdog === 'function' ? found : null;
  } catch {
    return null;
  }
}

let watchdog = null;
let listener = () => {};

/* Once, when the kernel starts. */
export function install() {
  watchdog = watchdogOfNode();
  if (watchdog) watchdog.startSigintWatchdog();
  else process.on('SIGINT', () => listener());
}

/* Whether a signal came since the last look. Stopping what was started twice tells and forgets, and goes on watching. */
function pending() {
  watchdog.startSigintWatchdog();
  return watchdog.stopSigintWatchdog();
}

/* Before a cell: what came before it does not count, and a listener that the last one left is gone. */
export function begin() {
  if (!watchdog) return;
  if (process.listenerCount('SIGINT') > 0) {
    watchdog.stopSigintWatchdog();
    process.removeAllListeners('SIGINT');
    watchdog.startSigintWatchdog();
  }
  pending();
}

/* Calls `onInterrupt` when a signal comes while nothing runs; returns the function that ends this. */
export function watch(onInterrupt) {
  if (!watchdog) {
    listener = onInterrupt;
    return () => { listener = () => {}; };
  }
  const timer = setInterval(() => { if (pending()) onInterrupt(); }, LOOK_MS);
  return () => clearInterval(timer);
}

/* Runs `f` so that SIGINT ends it, even in a loop. */
export function interruptible(f) {
  Object.defineProperty(globalThis, '__coveEnter', { value: f, configurable: true });
  try {
    return vm.runInThisContext('{ const f = globalThis.__coveEnter; delete globalThis.__coveEnter; f(); }', { breakOnSigint: true });
  } catch (error) {
    if (error?.code === 'ERR_SCRIPT_EXECUTION_INTERRUPTED') throw new Interrupted();
    throw error;
  } finally {
    delete globalThis.__coveEnter;
  }
}
