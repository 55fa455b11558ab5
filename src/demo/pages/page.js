"use strict";
// Tells the backend what happens on this page: which fields are filled in, not with what.
const query = new URLSearchParams(location.search);
const call = {};
for (const name of ["visit", "session_id"]) if (query.get(name)) call[name] = query.get(name);
const form = document.querySelector("form");
const said = document.querySelector("output");

for (const link of document.querySelectorAll("a")) link.search = location.search;

async function send(event, body) {
  const response = await fetch("/events/" + event, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ ...call, ...body }),
  });
  if (!response.ok) throw new Error((await response.json()).err_msg ?? "That did not work.");
}

function report(step) {
  if (Object.keys(call).length === 0) return;
  const event = { page: location.pathname, step };
  if (form) {
    event.form_name = form.dataset.name;
    const fields = [...form.elements].filter((field) => field.name);
    event.sections = [{ title: document.title, fields: fields.map((f) => ({ name: f.name, filled: f.value !== "" })) }];
  }
  send("form-event", event).catch(() => { said.textContent = "The agent does not see this page at present."; });
}

form?.addEventListener("change", (event) => report(event.target.name));
form?.addEventListener("submit", async (event) => {
  event.preventDefault();
  try {
    await send(form.dataset.event, { form_name: form.dataset.name, ...Object.fromEntries(new FormData(form)) });
    said.textContent = "Thank you. You can go on talking to our agent.";
  } catch (error) {
    said.textContent = error.message;
  }
});
report("opened");
