//! How the files that the process may open are shared out. Each connection of a client, to a
//! callback host or with a peer takes one. Without shares, clients that hold connections would stop
//! callbacks.

use crate::node::clients::table::REFUSALS_MAX;
use crate::node::resolver::threads::LOOKUPS_MAX;
use crate::node::settings::NodeSettings;

/// Files of the process itself (log, configuration, the first connections of the admin API); below
/// it the files of each core (ring, listeners, segments).
const OWN_FILES: u64 = 24;
const OWN_FILES_PER_CORE: u64 = 6;
/// Connections that each listener of the admin API holds at a time: at least, which are among the
/// files of the process, and at most. With the HTTP library's read buffer of at most 400 KiB each,
/// hostile clients of a listener hold at most 25 MiB.
const ADMIN_MIN: u64 = 4;
const ADMIN_MAX: u64 = 64;
/// Listeners of the admin API: a plain one, and one over TLS.
const ADMIN_LISTENERS: u64 = 2;

/// The limits that a number of files allows, never above the configured limits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileShares {
    /// How many files the process may open.
    pub files_max: u64,
    /// Client connections of one core.
    pub clients_per_core: u32,
    /// Connections of one core for timestamps.
    pub timestamps_per_core: u32,
    /// Callback connections of one core.
    pub callbacks_per_core: u32,
    /// How many names may be looked up at once.
    pub lookups: usize,
    /// Connections that each listener of the admin API holds.
    pub admin: usize,
}

impl FileShares {
    /// Shares out `files_max`. Of the files that the node does not need itself, clients get at most
    /// five eighths. An eighth is for lookups of names and for peers. Callbacks get the rest.
    pub fn of(files_max: u64, cores: usize, settings: &NodeSettings) -> Self {
        let cores = cores as u64;
        let free = files_max.saturating_sub(OWN_FILES + OWN_FILES_PER_CORE * cores);
        let admin = (ADMIN_MIN + free / 32).min(ADMIN_MAX);
        let shared = free - (admin - ADMIN_MIN) * ADMIN_LISTENERS;
        let timestamps = settings.timestamp.as_ref().map_or(0, |it| it.connections_per_core_max);
        let clients =
            if settings.serves_timers { settings.limits.connections_per_core_max } else { 0 };
        let (clients, timestamps) = (u64::from(clients), u64::from(timestamps));
        let wanted = (clients + timestamps) * cores;
        let granted = wanted.min(shared * 5 / 8);
        // Of clients and timestamps, the one that wants little gets all it wants, the other one the
        // rest. Connections that are refused need files for a moment, too.
        let refusals_max = REFUSALS_MAX as u64;
        let all = granted / cores;
        let per_core = |wanted: u64, others: u64| {
            let limit = match wanted.min(all.saturating_sub(others).max(all / 2)) {
                share if share == wanted => wanted,
                share if share > 2 * refusals_max => share - refusals_max,
                share => (share / 2).max(1),
            };
            u32::try_from(limit).unwrap_or(u32::MAX)
        };
        let callbacks = (shared - granted - shared / 8) / cores;
        Self {
            files_max,
            clients_per_core: per_core(clients, timestamps),
            timestamps_per_core: per_core(timestamps, clients),
            callbacks_per_core: u32::try_from(callbacks.max(1)).unwrap_or(u32::MAX),
            lookups: usize::try_from(shared / 16).unwrap_or(LOOKUPS_MAX).clamp(4, LOOKUPS_MAX),
            admin: admin as usize,
        }
    }

    /// Returns the settings within these shares. A callback host gets at most a quarter of the
    /// callback connections, so that a host that hangs does not have all of them.
    pub fn restricted(&self, settings: &NodeSettings) -> NodeSettings {
        let mut settings = settings.clone();
        if settings.serves_timers {
            settings.limits.connections_per_core_max = self.clients_per_core;
        }
        if let Some(timestamp) = &mut settings.timestamp {
            timestamp.connections_per_core_max = self.timestamps_per_core;
        }
        let callbacks = &mut settings.callbacks;
        let of_one = (self.callbacks_per_core / 4).max(1);
        callbacks.connections_per_host_max = callbacks.connections_per_host_max.min(of_one);
        callbacks.hosts_per_core_max = callbacks.hosts_per_core_max.min(self.callbacks_per_core);
        settings
    }

    /// Returns what to tell an operator when there are too few files for the settings: a sentence
    /// with the remedy. `None`: there are enough.
    pub fn shortage(&self, settings: &NodeSettings) -> Option<String> {
        let restricted = self.restricted(settings);
        if restricted == *settings {
            return None;
        }
        let mut kept = Vec::new();
        let mut tell = |what: &str, granted: u32, wanted: u32| {
            if granted < wanted {
                kept.push(format!("{granted} {what} instead of {wanted}"));
            }
        };
        let (limits, callbacks) = (&settings.limits, &settings.callbacks);
        let (limits_now, callbacks_now) = (&restricted.limits, &restricted.callbacks);
        tell(
            "client connections (limits.connections_per_core_max)",
            limits_now.connections_per_core_max,
            limits.connections_per_core_max,
        );
        if let (Some(now), Some(wanted)) = (&restricted.timestamp, &settings.timestamp) {
            tell(
                "connections for timestamps (timestamp.connections_per_core_max)",
                now.connections_per_core_max,
                wanted.connections_per_core_max,
            );
        }
        tell(
            "connections to one callback host (callbacks.connections_per_host_max)",
            callbacks_now.connections_per_host_max,
            callbacks.connections_per_host_max,
        );
        tell(
            "callback hosts at the same time (callbacks.hosts_per_core_max)",
            callbacks_now.hosts_per_core_max,
            callbacks.hosts_per_core_max,
        );
        Some(format!(
            "this process may open {} files only: each core takes {}, so that callbacks and peers \
             keep a share. Raise `ulimit -n` (systemd: LimitNOFILE=1048576), or lower these limits",
            self.files_max,
            kept.join(", ")
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::settings::TimestampSettings;

    fn with_timestamps() -> NodeSettings {
        let timestamp = Some(TimestampSettings::default());
        NodeSettings { timestamp, ..NodeSettings::default() }
    }

    #[test]
    fn with_many_files_everything_is_as_configured() {
        for settings in [NodeSettings::default(), with_timestamps()] {
            let shares = FileShares::of(1 << 20, 16, &settings);
            assert_eq!(shares.restricted(&settings), settings);
            assert_eq!(shares.shortage(&settings), None);
            assert_eq!(shares.lookups, LOOKUPS_MAX);
        }
    }

    #[test]
    fn with_few_files_everybody_has_a_share() {
        for settings in [NodeSettings::default(), with_timestamps()] {
            for (files_max, cores) in [(64, 1), (256, 1), (1_024, 2), (1_024, 8), (20_000, 2)] {
                let shares = FileShares::of(files_max, cores, &settings);
                let per_core = |count: u32| u64::from(count) * cores as u64;
                let clients = per_core(shares.clients_per_core + shares.timestamps_per_core);
                let callbacks = per_core(shares.callbacks_per_core);
                let admin = shares.admin as u64;
                assert!((ADMIN_MIN..=ADMIN_MAX).contains(&admin), "{shares:?}");
                let own = OWN_FILES
                    + OWN_FILES_PER_CORE * cores as u64
                    + (admin - ADMIN_MIN) * ADMIN_LISTENERS;
                assert!(clients + callbacks + own <= files_max, "{shares:?}");
                let shared = files_max - own;
                let refusals = 2 * (REFUSALS_MAX * cores) as u64;
                assert!(2 * clients + 4 >= shared * 5 / 8 || clients + refusals >= shared * 5 / 8);
                assert!(shares.clients_per_core > 0, "{shares:?}");
                assert!(callbacks + cores as u64 >= shared / 4, "{shares:?}");
                assert!((4..=LOOKUPS_MAX).contains(&shares.lookups));
            }
        }
        let shares = FileShares::of(1_024, 2, &with_timestamps());
        assert_eq!(
            (shares.clients_per_core, shares.timestamps_per_core, shares.callbacks_per_core),
            (81, 81, 116)
        );
        assert_eq!((shares.lookups, shares.admin), (928 / 16, 34));
        let mut settings = with_timestamps();
        settings.timestamp.as_mut().expect("on").connections_per_core_max = 3;
        let shares = FileShares::of(1_024, 1, &settings);
        assert_eq!(shares.timestamps_per_core, 3, "who asks for little gets it");
    }

    #[test]
    fn what_clients_do_not_ask_for_is_for_callbacks() {
        let mut settings = NodeSettings::default();
        settings.limits.connections_per_core_max = 10;
        let shares = FileShares::of(1_024, 1, &settings);
        assert_eq!((shares.clients_per_core, shares.callbacks_per_core), (10, 806));
        settings.serves_timers = false;
        assert_eq!(FileShares::of(1_024, 1, &settings).clients_per_core, 0);
    }

    #[test]
    fn with_hardly_any_files_a_node_still_tries() {
        let shares = FileShares::of(20, 4, &with_timestamps());
        let FileShares { clients_per_core, timestamps_per_core, callbacks_per_core, .. } = shares;
        assert_eq!((clients_per_core, timestamps_per_core, callbacks_per_core), (1, 1, 1));
    }

    #[test]
    fn a_shortage_is_told_with_its_remedy() {
        let settings = NodeSettings::default();
        let told = FileShares::of(1_024, 2, &settings).shortage(&settings).expect("too few");
        for part in [
            "may open 1024 files only",
            "226 client connections (limits.connections_per_core_max) instead of 16384",
            "29 connections to one callback host (callbacks.connections_per_host_max) instead of",
            "116 callback hosts at the same time (callbacks.hosts_per_core_max) instead of 16384",
            "Raise `ulimit -n` (systemd: LimitNOFILE=1048576)",
        ] {
            assert!(told.contains(part), "{told}");
        }
    }
}
