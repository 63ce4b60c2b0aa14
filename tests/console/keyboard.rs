//! The console without a mouse.

use kit::runner::Story;

use crate::browser::Browser;
use crate::node::Node;

pub const STORIES: &[Story] =
    &[("keyboard::everything_is_reached_by_keys", everything_is_reached_by_keys)];

const TAB: &str = "\u{e004}";
const ENTER: &str = "\u{e007}";
const ESCAPE: &str = "\u{e00c}";

fn everything_is_reached_by_keys() {
    let node = Node::start("");
    let browser = Browser::open(&node.console());
    browser.page("/destinations", "Destinations");
    let focused = "const it = document.activeElement; return it.innerText || it.name || it.id";
    // In the order of the page, and each one seen.
    let mut seen = Vec::new();
    for _ in 0..30 {
        browser.keys(TAB);
        let outline = "return getComputedStyle(document.activeElement).outlineStyle";
        let name = browser.script(focused, &[]).as_str().unwrap_or_default().to_owned();
        if seen.contains(&name)
            || browser.script(
                "return document.activeElement === \
             document.body",
                &[],
            ) == true
        {
            break;
        }
        assert_ne!(browser.script(outline, &[]), "none", "{name}");
        seen.push(name);
    }
    assert_eq!(seen.first().map(String::as_str), Some("Skip to the page"), "{seen:?}");
    for name in ["Overview", "Timers", "Configuration", "Set a rule …"] {
        assert!(seen.iter().any(|seen| seen.starts_with(name)), "{name}: {seen:?}");
    }
    // A page opens by Enter, a question ends by Escape, and the focus is where it was.
    let nav = "document.querySelector('nav a[href=\"#/configuration\"]').focus()";
    browser.script(nav, &[]);
    browser.keys(ENTER);
    browser.wait_for_text("Only what is set");
    browser.page("/destinations", "Destinations");
    browser.script("document.querySelector('[data-order]').focus()", &[]);
    browser.keys(ENTER);
    browser.wait("a question", "return document.querySelector('dialog[open]') !== null");
    browser.keys(ESCAPE);
    browser.wait("no question", "return document.querySelector('dialog') === null");
    assert_eq!(browser.script(focused, &[]), "Set a rule …");
    // The menu of a narrow page.
    browser.size(420);
    browser.script("document.getElementById('menu').focus()", &[]);
    browser.keys(ENTER);
    let open = "return document.querySelector('nav').classList.contains('open') && \
                document.getElementById('menu').getAttribute('aria-expanded') === 'true'";
    browser.wait("the menu", open);
    browser.picture("menu-420");
    browser.keys(ESCAPE);
    browser.wait("no menu", "return !document.querySelector('nav').classList.contains('open')");
}
