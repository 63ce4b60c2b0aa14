//! A copy of a timer in the terms of the internal HTTP API (docs/compat/timer-service.md §5.1).
//! This node tells such documents to original nodes and to other sites, and answers pages with
//! them.

// May panic: expectations 1.
// Why it does not: encoded 1.
// Reads the wall clock: original 1.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::base::ids::NodeHash;
use crate::base::time::Now;
use crate::cluster::view::View;
use crate::timer::definition::Content;
use crate::timer::naming::{is_digest, may_be_of_key};
use crate::wire::internal_json::{InternalCallback, InternalTimer};
use crate::wire::peer_message::TimerCopy;
use crate::wire::timer_json::Tags;

/// Returns the names of nodes. Nodes that this view does not know are left out.
pub(crate) fn names<'v>(view: &'v View, nodes: &[NodeHash]) -> Vec<&'v str> {
    let known = nodes.iter().filter_map(|node| view.peer_of(*node));
    known.map(|peer| view.name_of(peer)).collect()
}

/// Calls `write` with the document of a copy. `replicas` are the names to write; another site gets
/// none. `factor` is given where the path does not tell it. Sites that are no longer configured are
/// left out: what a record remembers of the others stays true.
pub(crate) fn with_document(
    now: Now,
    view: &View,
    copy: &TimerCopy<'_>,
    (replicas, factor): (&[&str], Option<u8>),
    write: impl FnOnce(&InternalTimer<'_>),
) {
    let content = copy.body.map(|body| (body.authority, Content::decode(body.content)));
    let tags = content.map_or(Tags::none(), |(_, content)| content.tags());
    let text = |bytes| std::str::from_utf8(bytes).expect("timers are stored from text");
    // Nodes of this service alone hold timers with attributes, and take the content as a whole.
    let whole = copy.body.filter(|body| Content::decode(body.content).has_attributes());
    let whole = whole.map(|body| STANDARD.encode(body.content));
    let callback = content.map(|(authority, content)| InternalCallback {
        authority,
        target: text(content.target),
        opaque: if whole.is_some() { "" } else { text(content.opaque) },
    });
    // An original names at least its own site.
    let local = [view.local_site()];
    let sites = if copy.sites.is_empty() { &local[..] } else { copy.sites.as_slice() };
    let mut sites: Vec<&str> = sites.iter().filter_map(|site| view.name_of_site(*site)).collect();
    // This site holds the timer, whatever it was called when the timer was written.
    let own = view.name_of_site(view.local_site()).filter(|own| !sites.contains(own));
    sites.extend(own);
    write(&InternalTimer {
        now: now.wall,
        // The start counts from the present tick, not from the next one. So the start is told up to
        // a tick too late, never too early. A start that was rounded up to the next tick is told as
        // the present tick; the delay of the message makes up for the difference.
        start_delta_ms: (copy.start_ms as i64)
            .wrapping_sub(now.mono.tick_floor().0 as i64)
            .min(if whole.is_some() { i64::MAX } else { 0 }),
        sequence: copy.standing.sequence,
        interval_ms: copy.interval_ms,
        // An original takes the end of a tombstone from interval and repeat-for.
        repeat_for_ms: match copy.body {
            Some(_) => copy.repeat_for_ms,
            None => copy.interval_ms.saturating_mul(copy.standing.sequence + 1),
        },
        callback,
        view_id: view.id(),
        replicas,
        sites: &sites,
        factor,
        tags: tags.as_slice(),
        version: Some(copy.standing.version),
        actives: Some(copy.standing.actives),
        owner: content.and_then(|(_, content)| content.owner()),
        content: whole.as_deref(),
        once: Some(copy.repeat_for_ms).filter(|digest| {
            copy.body.is_none() && may_be_of_key(copy.standing.id) && is_digest(*digest)
        }),
    });
}
