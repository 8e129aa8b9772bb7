// Replace the live part of a page whenever the server sends a new state.
const live = document.querySelector("[data-live]");
if (live) {
  const events = new EventSource("/events?of=" + encodeURIComponent(live.dataset.live));
  events.onmessage = (message) => {
    const state = JSON.parse(message.data);
    if (state.turn !== live.dataset.turn) return location.reload();
    live.innerHTML = state.html;
  };
  addEventListener("pagehide", () => events.close());
}
for (const form of document.querySelectorAll("form[data-sure]"))
  form.addEventListener("submit", (event) => confirm(form.dataset.sure) || event.preventDefault());
const here = document.querySelector("nav [aria-current]"); // scrollIntoView would move the start of Tab
if (here) here.parentElement.scrollLeft = here.offsetLeft - 40;
