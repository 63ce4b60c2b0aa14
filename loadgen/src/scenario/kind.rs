//! The scenarios by name: what each scenario is for, and the defaults of its flags.

/// The scenarios that can be run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scenario {
    /// Creates timers and does nothing else.
    Post,
    /// Creates, updates and deletes timers.
    Churn,
    /// Measures the lateness of every pop at a steady rate.
    Accuracy,
    /// Measures how many due callbacks are sent per second.
    Pops,
    /// All timers are due in the same millisecond while requests go on.
    Herd,
    /// Runs call sessions like those of a charging function.
    Ralf,
    /// One callback host hangs while another answers.
    Isolation,
    /// Measures memory per timer.
    Fill,
}

impl Scenario {
    /// All scenarios, in the order of the help.
    pub const ALL: [Scenario; 8] = [
        Scenario::Post,
        Scenario::Churn,
        Scenario::Accuracy,
        Scenario::Pops,
        Scenario::Herd,
        Scenario::Ralf,
        Scenario::Isolation,
        Scenario::Fill,
    ];

    /// The name of the scenario's subcommand.
    pub fn name(self) -> &'static str {
        match self {
            Scenario::Post => "post",
            Scenario::Churn => "churn",
            Scenario::Accuracy => "accuracy",
            Scenario::Pops => "pops",
            Scenario::Herd => "herd",
            Scenario::Ralf => "ralf",
            Scenario::Isolation => "isolation",
            Scenario::Fill => "fill",
        }
    }

    /// What the scenario does, in one line for the help.
    pub fn about(self) -> &'static str {
        match self {
            Scenario::Post => "Create timers an hour ahead: requests per second and their latency",
            Scenario::Churn => "Create, update and delete in equal parts, --timers alive at a time",
            Scenario::Accuracy => {
                "Create --rate timers a second of --interval-ms: lateness of every pop, and which \
                 were early, lost or doubled"
            }
            Scenario::Pops => "--timers due at one time: how fast callbacks are sent and answered",
            Scenario::Herd => {
                "--timers due in the same millisecond while --rate requests a second go on"
            }
            Scenario::Ralf => {
                "Call sessions as a charging function makes them: POST, PUT at a refresh, DELETE \
                 at hang-up"
            }
            Scenario::Isolation => {
                "--timers due at a host that never answers: how late are another host's pops?"
            }
            Scenario::Fill => "Create --timers far ahead: memory of the server per timer",
        }
    }

    /// The arguments of an example for the help.
    pub fn example(self) -> &'static str {
        match self {
            Scenario::Post => "post --connections 64 --pipeline 16 --core 1 --server-pid 4711",
            Scenario::Churn => "churn --rate 50k --timers 200000 --html churn.html",
            Scenario::Accuracy => "accuracy --rate 20k --duration-s 60 --core 1 --sink-core 1",
            Scenario::Pops => "pops --timers 2000000 --server-pid 4711",
            Scenario::Herd => "herd --timers 1000000 --rate 2000",
            Scenario::Ralf => "ralf --rate 30k --timers 500000 --poisson --duration-s 30",
            Scenario::Isolation => "isolation --timers 100000 --rate 2000",
            Scenario::Fill => "fill --timers 10000000 --server-pid 4711",
        }
    }

    /// The flags whose defaults differ between scenarios, with their defaults for this scenario.
    pub fn defaults(self) -> [(&'static str, &'static str); 10] {
        // The values stand in the order rate, connections, pipeline, warm-up, duration, timers,
        // interval, refreshes, spread, burst.
        let values = match self {
            Scenario::Post => ["max", "64", "1", "1", "10", "1000000000", "3600000", "0", "0", "0"],
            Scenario::Churn => ["max", "64", "1", "1", "10", "100000", "3600000", "1", "0", "0"],
            Scenario::Accuracy => ["2000", "16", "16", "1", "10", "1", "1000", "0", "0", "250"],
            Scenario::Pops => ["max", "64", "16", "0", "60", "1000000", "1", "0", "0", "0"],
            Scenario::Herd => ["1000", "16", "16", "0", "30", "1000000", "3600000", "0", "0", "0"],
            Scenario::Ralf => ["10000", "64", "16", "1", "10", "50000", "300000", "4", "0", "0"],
            Scenario::Isolation => {
                ["2000", "16", "16", "1", "20", "100000", "1000", "0", "0", "250"]
            }
            Scenario::Fill => ["max", "64", "16", "0", "3600", "1000000", "3600000", "0", "0", "0"],
        };
        let flags = [
            "rate",
            "connections",
            "pipeline",
            "warm_up_s",
            "duration_s",
            "timers",
            "interval_ms",
            "refreshes",
            "spread_ms",
            "burst_us",
        ];
        std::array::from_fn(|index| (flags[index], values[index]))
    }

    /// Flags that do nothing in this scenario. The help leaves them out.
    pub fn unused(self) -> &'static [&'static str] {
        match self {
            Scenario::Post | Scenario::Fill => &[
                "refreshes",
                "lead_ms",
                "spread_ms",
                "sink_listen",
                "sink_core",
                "sink_mode",
                "pops_each",
            ],
            Scenario::Churn => {
                &["lead_ms", "spread_ms", "sink_listen", "sink_core", "sink_mode", "pops_each"]
            }
            Scenario::Ralf => &["lead_ms", "spread_ms", "opaque_bytes"],
            Scenario::Accuracy => {
                &["timers", "refreshes", "lead_ms", "spread_ms", "delete", "admin"]
            }
            Scenario::Pops => &[
                "rate",
                "burst_us",
                "poisson",
                "refreshes",
                "interval_ms",
                "pops_each",
                "delete",
                "admin",
            ],
            Scenario::Herd | Scenario::Isolation => &["refreshes", "pops_each"],
        }
    }
}
