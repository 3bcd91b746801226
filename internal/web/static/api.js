// Talking to the node that serves the page.

// Failure is an answer that is no success; its message is the reply that a client would get.
export class Failure extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

async function answer(response) {
  let body = {};
  try {
    body = await response.json();
  } catch {
    throw new Failure(response.status, "the node did not answer");
  }
  if (!response.ok) throw new Failure(response.status, body.error || response.statusText);
  return body;
}

async function send(path, options) {
  let response;
  try {
    response = await fetch(path, options);
  } catch {
    throw new Failure(0, "the node does not answer");
  }
  return answer(response);
}

export function get(path, query = {}) {
  const words = new URLSearchParams(query).toString();
  return send("api/" + path + (words && "?" + words), { headers: { "Coordd-Request": "1" } });
}

export function post(path, body) {
  return send("api/" + path, { method: "POST", body: JSON.stringify(body),
    headers: { "Content-Type": "application/json", "Coordd-Request": "1" } });
}

// live calls on with each event of the stream: its name and content. "lost" means that the node
// does not answer; the browser tries again. It returns a function that ends the stream.
export function live(on) {
  const stream = new EventSource("api/live");
  for (const name of ["sample", "failure", "ended"]) {
    stream.addEventListener(name, (e) => on(name, JSON.parse(e.data)));
  }
  stream.addEventListener("error", () => {
    on(stream.readyState === EventSource.CLOSED ? "refused" : "lost", {});
  });
  return () => stream.close();
}
