// In the form of the k6 script of Kong's public benchmark suite: the same environment, paths, credentials and draws.
import http from 'k6/http';
import { check } from 'k6';

const size = Number(__ENV.ENTITY_CONFIG_SIZE || 1);
const host = 'https://kong-kong-proxy.kong.svc.cluster.local';
const sigma = Math.floor((size * 0.1) / 1.3);

export const options = { vus: __ENV.K6_VUS || 50, duration: __ENV.K6_DURATION || '120s' };

// The Box-Muller transform: a normal distribution around the middle route.
function drawn() {
  const z = Math.sqrt(-2 * Math.log(1 - Math.random())) * Math.cos(2 * Math.PI * Math.random());
  return Math.floor(z * sigma + Math.floor(size / 2));
}

function credentials() {
  if (__ENV.BASIC_AUTH_ENABLED === 'true') return { Authorization: 'Basic dGVzdHVzZXI6dGVzdHVzZXJwYXNzd29yZDE=' };
  if (__ENV.KEY_AUTH_ENABLED === 'true') return { apikey: 'testuserpassword1' };
  return {};
}

export default function () {
  const route = size > 1 ? `${drawn()}route` : 'upstream';
  const response = http.get(`${host}/${route}/json/valid`, { timeout: '180s', headers: credentials() });
  check(response, { 'the status is 200': (it) => it.status === 200 });
}
