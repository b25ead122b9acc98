// One visitor: looks at the page's data, begins an upload, and now and then asks for what is not there.
import http from 'k6/http'
import { check } from 'k6'

http.setResponseCallback(http.expectedStatuses(200, 201, 204, 400, 404))

const url = __ENV.SLUICE_URL
const headers = { 'Content-Type': 'application/json' }

export const options = {
  vus: Number(__ENV.VISITORS),
  duration: __ENV.DURATION,
}

export default function () {
  check(http.get(`${url}/api/videos?limit=20`), { listed: (answer) => answer.status === 200 })
  const name = `k6-${__VU}-${__ITER}.mp4`
  const created = http.post(`${url}/api/uploads`, JSON.stringify({ name, size: 1000 }), { headers })
  check(created, { created: (answer) => answer.status === 201 })
  if (created.status === 201) {
    check(http.del(`${url}/api/uploads/${created.json('id')}`), { ended: (answer) => answer.status === 204 })
  }
  check(http.get(`${url}/api/uploads/${'0'.repeat(32)}`), { unknown: (answer) => answer.status === 404 })
  check(http.post(`${url}/api/uploads`, '{', { headers }), { malformed: (answer) => answer.status === 400 })
}
