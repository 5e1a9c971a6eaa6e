// The requests of a plan, as weirlab lists them; answers are judged as weirlab's own generator judges them.
import http from 'k6/http';
import { check } from 'k6';
import { SharedArray } from 'k6/data';
import { Counter } from 'k6/metrics';

// Once for all virtual users: each would spend most of its time on a list of its own.
const requests = new SharedArray('requests', () => JSON.parse(open('./requests.json')));
const settings = JSON.parse(open('./options.json'));
const unanswered = new Counter('weirlab_unanswered');
const timeouts = new Counter('weirlab_timeouts');
const TIMEOUT = 1050;

export const options = settings.options;
const any = http.expectedStatuses({ min: 200, max: 399 });
const expected = {};

export default function () {
  const place = (__VU * 997 + __ITER) % requests.length;
  const request = requests[place];
  const params = { headers: request.headers, timeout: settings.timeout, responseCallback: expectedOf(request) };
  if (!options.discardResponseBodies) params.responseType = settings.responseType;
  const response = http.request(request.method, __ENV.WEIRLAB_TARGET + request.path, request.body || null, params);
  if (response.status === 0) {
    unanswered.add(1);
    if (response.error_code === TIMEOUT) timeouts.add(1);
  }
  check(response, { right: (it) => isRight(it, request) });
}

function expectedOf(request) {
  const key = request.status.join();
  if (!(key in expected)) expected[key] = key === '' ? any : http.expectedStatuses(...request.status);
  return expected[key];
}

function isRight(response, request) {
  const status = response.status;
  const known = request.status.length ? request.status.includes(status) : status >= 200 && status < 400;
  if (!known || options.discardResponseBodies) return known;
  const body = response.body;
  const length = body === null ? 0 : body.byteLength === undefined ? body.length : body.byteLength;
  return (
    (request.length === null || length === request.length) &&
    (request.contains === null || String(body).includes(request.contains))
  );
}
