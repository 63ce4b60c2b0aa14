//! The jobs of a core, for everybody who asks. The core runs them (`core::jobs`).

use crate::wire::jobs::{JOBS_TOLD_MAX, JobReport, JobState, JobsAsk, JobsPart};

/// One job.
#[derive(Debug)]
struct Job {
    report: JobReport,
    is_to_stop: bool,
}

/// The jobs that run, and those that ended last.
#[derive(Debug, Default)]
pub struct Jobs(Vec<Job>);

impl Jobs {
    /// Takes a job. The one that ended first gives way to it. Returns whether there is room.
    pub fn begin(&mut self, report: JobReport) -> bool {
        if self.0.len() >= JOBS_TOLD_MAX {
            let ended = self.0.iter().position(|job| job.report.state != JobState::Running);
            let Some(place) = ended else { return false };
            self.0.remove(place);
        }
        self.0.push(Job { report, is_to_stop: false });
        true
    }

    /// What is told of a job.
    pub fn report_mut(&mut self, id: u64) -> Option<&mut JobReport> {
        self.0.iter_mut().find(|job| job.report.id == id).map(|job| &mut job.report)
    }

    /// Whether a job is to stop.
    pub fn is_to_stop(&self, id: u64) -> bool {
        self.0.iter().any(|job| job.report.id == id && job.is_to_stop)
    }

    /// Tells of the jobs that a question asks for.
    pub fn part(&mut self, shards: u16, ask: &JobsAsk) -> JobsPart {
        let is_asked = |job: &&mut Job| ask.job.is_none_or(|id| id == job.report.id);
        let jobs = self.0.iter_mut().filter(is_asked).map(|job| {
            job.is_to_stop |= ask.is_stop;
            job.report.clone()
        });
        JobsPart { shards, jobs: jobs.collect() }
    }
}
