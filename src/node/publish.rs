//! Copies what a core counts into its meters, for other threads to read.

// May panic: indices 5.
// Why it does not: fixed 4, cores 1.

use std::sync::Arc;

use crate::cluster::detector::Liveness;
use crate::core::Core;
use crate::core::journal::JournalCounters;
use crate::core::peers::site_watch::SiteStanding;
use crate::ring::{self, Ring, thread_usage};

use crate::node::callbacks::dialling::Dialling;
use crate::node::callbacks::lanes::Lanes;
use crate::node::clients::service::Service;
use crate::node::clients::table::Clients;
use crate::node::engine::Engine;
use crate::node::meters::CoreMeters;
use crate::node::peers::sockets::PeerSockets;
use crate::node::timestamps::server::TimestampServer;
use crate::shard::counters::Counters;
use crate::tls::acceptor::Acceptor;

/// Publishes the present state of a core. Returns `true` when there are more changes of statistics
/// tags than the control thread has taken: publish again soon. Cost: some seventy relaxed stores,
/// two per peer, and one system call.
pub fn publish(engine: &mut Engine) -> bool {
    let Engine { core, clients, callbacks, peers, timestamps, ring, commands, .. } = engine;
    let meters = &engine.meters[engine.own];
    let is_behind = meters.tags.tell(core.shard_mut().tags_mut());
    let running = core.jobs_running() as u64;
    publish_give_ups(meters, core);
    let shard = core.shard();
    let counted = shard.counters();
    meters.timers.set(counted.timers);
    meters.tombstones.set(counted.tombstones);
    meters.creates.set(counted.creates);
    meters.updates.set(counted.updates);
    meters.deletes.set(counted.deletes);
    meters.reads.set(counted.reads);
    meters.listed.set(counted.listed);
    meters.list_looks.set(counted.list_looks);
    meters.jobs_running.set(running);
    meters.never_firing.set(counted.never_firing);
    meters.pops_delivered.set(counted.delivered);
    meters.pops_failed.set(counted.failed);
    meters.pops_timed_out.set(counted.timed_out);
    meters.pops_given_up.set(counted.given_up);
    meters.timers_gone.set(counted.gone);
    meters.timers_acted.set(counted.acted);
    meters.timers_paused.set(shard.timers_paused());
    meters.pops_missed.set(counted.missed);
    publish_letters(meters, counted);
    meters.pops_retried.set(counted.retried);
    meters.pops_waiting.set(counted.waiting);
    meters.pops_in_flight.set(counted.in_flight);
    meters.oldest_overdue_ms.set(counted.oldest_overdue_ms);
    meters.wheel_moved.set(counted.wheel_moved);
    meters.requests_refused.set(counted.refused);
    meters.writes_replicated.set(counted.replicated);
    meters.writes_waiting.set(counted.writes_waiting);
    meters.pops_handed_over.set(counted.handed_over);
    meters.copies_refused.set(counted.copies_refused);
    meters.copies_wanted.set(counted.copies_wanted);
    meters.node_full.set(counted.is_full);
    meters.peer_messages_refused.set(counted.refused_by_peers);
    meters.future_versions.set(counted.future_versions);
    publish_reconciling(meters, counted);
    publish_journal(core.journal_counters(), meters);
    let shard = core.shard();
    meters.store_bytes.set(shard.bytes());
    meters.store_held_bytes.set(shard.held_bytes());
    meters.callback_hosts.set(shard.hosts_known());
    meters.callback_lanes.set(shard.lanes());
    meters.pops_without_lane.set(counted.without_lane);
    meters.pops_held_by_rule.set(counted.held_by_rule);
    publish_clients(meters, clients);
    publish_callbacks(meters, clients, callbacks);
    publish_peers(meters, core, peers);
    publish_sites(meters, core);
    let tls_failed = peers.tls_failed + clients.handshakes.nodes_failed;
    meters.peer_tls_failed.set(tls_failed + core.peer_counters().misnamed);
    publish_internal(meters, &clients.service, core);
    publish_timestamps(meters, timestamps);
    let mesh = core.mesh();
    mesh.depth();
    meters.mesh_sent.set(mesh.sent);
    meters.mesh_full.set(mesh.refused);
    meters.mesh_depth_max.set(mesh.depth_max);
    publish_kernel(meters, ring);
    // Last, so that a reader who sees this number also sees what followed from the commands.
    meters.commands_taken.set(commands.taken());
    is_behind
}

/// What this core has asked of the kernel.
fn publish_kernel(meters: &CoreMeters, ring: &Ring) {
    meters.ring_enters.set(ring.enters());
    meters.ring_shortages.set(ring.shortages());
    let usage = thread_usage();
    meters.cpu_ns.set(usage.cpu_ns);
    meters.page_faults.set(usage.page_faults);
}

/// Has the log told of pops that were given up.
fn publish_give_ups(meters: &CoreMeters, core: &mut Core) {
    if core.shard().has_given_up() && meters.give_ups.has_room() {
        meters.give_ups.give(core.shard_mut().take_given_up());
    }
}

fn publish_callbacks(meters: &CoreMeters, clients: &Clients, callbacks: &mut Lanes) {
    meters.callback_connections.set(callbacks.open() as u64);
    let (named, met) = (clients.service.denied_hosts, callbacks.denied);
    let mut denied = named.into_iter().zip(met).map(|(named, met)| named + met);
    let [node, rule, link_local, metadata, not_allowed] =
        std::array::from_fn(|_| denied.next().unwrap_or(0));
    meters.callbacks_denied_node.set(node);
    meters.callbacks_denied_rule.set(rule);
    meters.callbacks_denied_link_local.set(link_local);
    meters.callbacks_denied_metadata.set(metadata);
    meters.callbacks_denied_not_allowed.set(not_allowed);
    if callbacks.dialling.has_news() {
        publish_dialling(meters, &mut callbacks.dialling);
    }
}

fn publish_dialling(meters: &CoreMeters, dialling: &mut Dialling) {
    meters.callbacks_tls_handshakes.set(dialling.done);
    meters.callbacks_tls_resumed.set(dialling.resumed);
    let [authority, name, time, certificate, alert, protocol, unfinished, none] = dialling.failed;
    meters.callbacks_tls_unknown_authority.set(authority);
    meters.callbacks_tls_wrong_name.set(name);
    meters.callbacks_tls_untimely.set(time);
    meters.callbacks_tls_bad_certificate.set(certificate);
    meters.callbacks_tls_alerts.set(alert);
    meters.callbacks_tls_protocol_errors.set(protocol);
    meters.callbacks_tls_unfinished.set(unfinished);
    meters.callbacks_tls_no_authorities.set(none);
    dialling.tell(&meters.tls_failures);
}

fn publish_clients(meters: &CoreMeters, clients: &Clients) {
    meters.requests.set(clients.answered + clients.service.written);
    meters.requests_bad.set(clients.service.bad);
    let denied = clients.service.denied;
    meters.requests_without_token.set(denied.missing);
    meters.requests_of_unknown_token.set(denied.unknown);
    meters.requests_beyond_role.set(denied.forbidden);
    meters.requests_beyond_timers.set(denied.timers);
    meters.requests_beyond_create_rate.set(denied.creates);
    meters.requests_beyond_connections.set(denied.connections);
    meters.connections.set(clients.open() as u64);
    meters.connections_accepted.set(clients.accepted);
    meters.connections_refused.set(clients.refused);
    meters.partial_bytes.set(clients.partial_bytes() as u64);
    meters.unsent_bytes.set(clients.service.room.held_bytes as u64);
    meters.answers_refused.set(clients.service.room.refused);
    meters.stuck_closed.set(clients.stuck_closed);
    meters.tls_handshakes.set(clients.handshakes.done);
    meters.tls_resumed.set(clients.handshakes.resumed);
    meters.tls_failed.set(clients.handshakes.failed);
    let expires_s = |acceptor: &Option<Arc<Acceptor>>| {
        acceptor.as_ref().map_or(0, |acceptor| acceptor.expires_s())
    };
    let [of_clients, of_nodes] = [&clients.handshakes.acceptor, &clients.handshakes.nodes];
    meters.tls_certificate_expiry_timestamp_seconds.set(expires_s(of_clients));
    meters.peer_certificate_expiry_timestamp_seconds.set(expires_s(of_nodes));
}

fn publish_reconciling(meters: &CoreMeters, counted: &Counters) {
    meters.pops_without_place.set(counted.without_place);
    meters.pops_lacking.set(counted.without_means);
    meters.timers_moved.set(counted.moved);
    meters.timers_misplaced.set(counted.misplaced);
    meters.timers_lacking.set(counted.lacking);
    meters.walks.set(counted.walks);
    meters.walk_seen.set(counted.walk_seen);
    meters.peers_lacking.set(counted.peers_lacking);
    meters.timers_ended_away.set(counted.ended_away);
    meters.tombstones_ended_early.set(counted.tombstones_ended_early);
    meters.offers_waiting.set(counted.offers_waiting);
}

fn publish_peers(meters: &CoreMeters, core: &Core, sockets: &PeerSockets) {
    let peers = core.peer_counters();
    let mut believed = [0_u64; 3];
    let sites = core.view().connected_sites();
    for (peer, liveness, dialect) in core.peers_believed() {
        believed[liveness as usize] += u64::from(!sites.contains(peer));
        meters.beliefs.set(peer, liveness, dialect, sockets.is_secured(peer));
    }
    meters.peers_alive.set(believed[Liveness::Alive as usize]);
    meters.peers_suspect.set(believed[Liveness::Suspect as usize]);
    meters.peers_dead.set(believed[Liveness::Dead as usize]);
    for (meter, kept_bytes) in meters.kept_bytes.iter().zip(core.peer_bytes_kept()) {
        meter.set(kept_bytes);
    }
    meters.peer_connections.set(core.inbounds_open() as u64);
    meters.peer_messages_kept.set(core.peer_messages_kept());
    meters.peer_sent_bytes.set(peers.bytes_sent);
    meters.peer_received_bytes.set(peers.bytes_received);
    meters.peer_messages_sent.set(peers.messages_sent);
    meters.peer_messages_received.set(peers.messages_received);
    meters.peer_messages_dropped.set(peers.messages_dropped);
    meters.peer_messages_malformed.set(peers.messages_malformed);
    meters.peer_messages_busy.set(peers.messages_busy);
    meters.peer_connects.set(peers.connected);
    meters.peer_losses.set(peers.lost);
    meters.peer_refusals.set(sockets.refused);
    meters.peer_protocol_errors.set(peers.broken);
    meters.peer_connections_shed.set(peers.shed + sockets.shed);
    meters.peer_strangers.set(peers.strangers);
    meters.site_refusals.set(peers.site_refusals);
    meters.peer_unproven.set(peers.unproven + sockets.unproven);
    meters.peer_tls_connections.set(sockets.secured() as u64);
    meters.peer_plain_refused.set(peers.plain);
    meters.peer_twins.set(peers.twins);
    meters.peer_same_instance.set(peers.same_instance);
    meters.peer_other_view.set(peers.other_view);
    let clock = core.clock();
    meters.clocks_apart_ms.set(clock.apart_ms);
    meters.clock_refused.set(u64::from(clock.is_refused));
    meters.clock_doubted.set(u64::from(core.shard().doubts_clock()));
    meters.writes_refused.set(u64::from(core.refuses_writes()));
    meters.clock_alarms.set(peers.clocks_apart);
    meters.clock_refusals.set(peers.clocks_refused);
}

/// How the other sites stand, and the worst of each.
fn publish_sites(meters: &CoreMeters, core: &Core) {
    let mut all = SiteStanding::default();
    let (mut unreached, mut unreached_ms) = (0, 0);
    let has_sites = !core.view().connected_sites().is_empty();
    let standings = has_sites.then(|| core.sites(ring::now()));
    for (site, standing) in standings.into_iter().flatten() {
        meters.sites.set(site, &standing);
        if !standing.is_reached {
            unreached += 1;
            unreached_ms = standing.for_ms.max(unreached_ms);
        }
        all.lag_ms = all.lag_ms.max(standing.lag_ms);
        all.waiting += standing.waiting;
        all.to_offer += standing.to_offer;
        all.differs_ms = all.differs_ms.max(standing.differs_ms);
    }
    meters.sites_unreached.set(unreached);
    meters.site_unreached_ms.set(unreached_ms);
    meters.site_lag_ms.set(all.lag_ms);
    meters.site_messages_kept.set(all.waiting);
    meters.site_timers_to_offer.set(all.to_offer);
    meters.site_lists_differ_ms.set(all.differs_ms.unwrap_or(0));
}

fn publish_internal(meters: &CoreMeters, service: &Service, core: &Core) {
    let (internal, counted) = (service.internal, core.shard().counters());
    meters.internal_copies.set(internal.copies);
    meters.internal_tags_dropped.set(internal.tags_dropped);
    meters.internal_pages.set(internal.pages);
    meters.internal_page_timers.set(counted.collected);
    meters.internal_references.set(internal.references);
    meters.internal_timers_released.set(counted.released);
    meters.internal_strangers.set(service.gate.refused);
}

fn publish_timestamps(meters: &CoreMeters, timestamps: &TimestampServer) {
    let counted = &timestamps.issuer.counters;
    meters.timestamps.set(counted.timestamps);
    meters.timestamp_calls.set(counted.calls);
    meters.timestamp_ranges.set(counted.ranges);
    meters.timestamp_waits.set(counted.waits);
    meters.timestamp_refusals_not_serving.set(counted.refused_not_serving);
    meters.timestamp_refusals_range.set(counted.refused_range);
    meters.timestamp_refusals_waited.set(counted.refused_waited);
    meters.timestamp_unknown_methods.set(counted.unknown_methods);
    meters.timestamp_withheld.set(counted.withheld);
    let waiting = timestamps.waiting() + timestamps.issuer.asked();
    meters.timestamp_waiting.set(waiting as u64);
    meters.timestamp_connections.set(timestamps.open() as u64);
    meters.timestamp_connections_accepted.set(timestamps.accepted);
    meters.timestamp_connections_refused.set(timestamps.refused);
    meters.timestamp_protocol_errors.set(timestamps.protocol_errors);
}

/// Publishes what the journal has counted.
fn publish_journal(counted: Option<&JournalCounters>, meters: &CoreMeters) {
    let Some(counted) = counted else { return };
    meters.journal_writes.set(counted.written.writes);
    meters.journal_entries.set(counted.written.entries);
    meters.journal_written_bytes.set(counted.written.bytes);
    meters.journal_segments.set(counted.segments);
    meters.journal_live_bytes.set(counted.live_bytes);
    meters.journal_lag.set(counted.lag);
    meters.journal_waiting.set(counted.waiting);
    meters.journal_emptied.set(counted.emptied);
    meters.journal_segment_failures.set(counted.not_prepared);
    meters.journal_full.set(counted.is_full);
    meters.journal_stalled.set(counted.is_stalled);
    meters.journal_away.set(counted.is_away);
    meters.journal_stalls.set(counted.stalls);
}

/// Publishes what became of pops that were given up, and of reports.
fn publish_letters(meters: &CoreMeters, counted: &Counters) {
    meters.dead_letters.set(counted.letters);
    meters.dead_letter_bytes.set(counted.letter_bytes);
    meters.dead_letters_kept.set(counted.letters_kept);
    meters.dead_letters_sent.set(counted.letters_sent);
    meters.dead_letters_replayed.set(counted.letters_replayed);
    meters.dead_letters_deleted.set(counted.letters_deleted);
    meters.dead_letters_dropped_for_number.set(counted.letters_pushed_out);
    meters.dead_letters_dropped_for_age.set(counted.letters_too_old);
    meters.dead_letters_dropped_for_room.set(counted.letters_without_room);
    meters.reports_made.set(counted.reports_made);
    meters.reports_given_up.set(counted.reports_given_up);
    meters.reports_dropped_for_room.set(counted.reports_without_room);
}
