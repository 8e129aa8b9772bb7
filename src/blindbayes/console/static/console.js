// Live parts of a page: the server sends each anew when it changes. Without this file the page loads again instead.
const live = document.querySelector("[data-live]");
if (live) {
  const events = new EventSource("/events?of=" + encodeURIComponent(live.dataset.live));
  events.onmessage = (message) => {
    const said = JSON.parse(message.data);
    if (said.turn !== live.dataset.turn) return location.reload();
    live.innerHTML = said.html;
  };
  addEventListener("pagehide", () => events.close());
}
for (const form of document.querySelectorAll("form[data-sure]"))
  form.addEventListener("submit", (event) => confirm(form.dataset.sure) || event.preventDefault());
const here = document.querySelector("nav [aria-current]"); // scrollIntoView would move where Tab begins
if (here) here.parentElement.scrollLeft = here.offsetLeft - 40;
