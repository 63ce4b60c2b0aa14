//! A page that the kernel shares with the ring: the ring writes there until when it waits, so that
//! io_uring_enter copies no argument and the ring need not read the clock before it. (Registered
//! wait arguments, Linux 6.13: io_uring_register(2), IORING_REGISTER_MEM_REGION.)

// May panic: assertions 1.
// Why it does not: compiled 1.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::ptr;

use io_uring::IoUring;

use super::clock;
use super::mapping::{Mapping, Pages};
use crate::base::time::MonoNs;

/// Flags of io_uring_enter(2): the argument is an offset in the registered region, and its time is
/// a moment, not a duration.
pub(super) const ENTER_FLAGS: u32 = 1 << 6 | 1 << 5;
/// Operations of io_uring_register(2).
const REGISTER_CLOCK: libc::c_long = 29;
const REGISTER_MEM_REGION: libc::c_long = 34;
/// The region is memory of this process.
const REGION_OF_USER: u32 = 1;
/// The region holds arguments of waits.
const REGION_OF_WAITS: u64 = 1;
/// The argument has a time.
const HAS_TIME: u32 = 1;
/// Bytes of the region. No page of the supported machines is larger.
const REGION_BYTES: usize = 64 << 10;

/// What a wait takes (struct io_uring_reg_wait).
#[repr(C)]
pub(super) struct WaitArgument {
    seconds: i64,
    nanoseconds: i64,
    min_wait_us: u32,
    flags: u32,
    signals: [u64; 2],
    reserved: [u64; 3],
}

const _: () = assert!(size_of::<WaitArgument>() == 64);

/// struct io_uring_region_desc.
#[repr(C)]
struct Region {
    address: u64,
    bytes: u64,
    flags: u32,
    id: u32,
    map_offset: u64,
    reserved: [u64; 4],
}

/// struct io_uring_mem_region_reg.
#[repr(C)]
struct Registration {
    region: u64,
    flags: u64,
    reserved: [u64; 2],
}

/// struct io_uring_clock_register.
#[repr(C)]
struct Clock {
    id: u32,
    reserved: [u32; 3],
}

/// The page. It must outlive its ring.
pub(super) struct WaitArea {
    page: Mapping,
}

impl WaitArea {
    /// Shares a page with a ring that was made disabled. `None`: the kernel does not have it.
    pub(super) fn register(uring: &IoUring) -> Option<WaitArea> {
        let area = WaitArea { page: Mapping::new(REGION_BYTES, Pages::AtFirstUse).ok()? };
        let clock = Clock { id: libc::CLOCK_BOOTTIME as u32, reserved: [0; 3] };
        // SAFETY: the kernel reads the structure that this operation takes, during the call.
        let is_clock_set = unsafe { register(uring.as_raw_fd(), REGISTER_CLOCK, &clock, 0) };
        let mut region = Region {
            address: area.page.address().as_ptr() as u64,
            bytes: REGION_BYTES as u64,
            flags: REGION_OF_USER,
            id: 0,
            map_offset: 0,
            reserved: [0; 4],
        };
        let flags = REGION_OF_WAITS;
        let registration = Registration { region: &raw mut region as u64, flags, reserved: [0; 2] };
        // SAFETY: the kernel reads the structure that this operation takes, and reads and writes
        // the one that it names, during the call: both outlive it, the second is mutable. It pins
        // the page, and reads it in waits only.
        let is_shared = is_clock_set.is_ok()
            && unsafe { register(uring.as_raw_fd(), REGISTER_MEM_REGION, &registration, 1) }
                .is_ok();
        is_shared.then_some(area)
    }

    /// Sets until when the next wait with [`ENTER_FLAGS`] lasts.
    pub(super) fn set(&mut self, until: MonoNs) {
        let ns = clock::kernels(until);
        let argument = WaitArgument {
            seconds: (ns / 1_000_000_000) as i64,
            nanoseconds: (ns % 1_000_000_000) as i64,
            min_wait_us: 0,
            flags: HAS_TIME,
            signals: [0; 2],
            reserved: [0; 3],
        };
        let page = self.page.address().cast::<WaitArgument>();
        // SAFETY: the page is mapped, aligned and large enough, and this value alone writes to it.
        // The kernel reads it only while this thread is in io_uring_enter.
        unsafe { page.write_volatile(argument) };
    }
}

/// Calls io_uring_register(2).
///
/// # Safety
///
/// `argument` must be what `operation` takes, and so must all that it names.
unsafe fn register<T>(
    ring: RawFd,
    operation: libc::c_long,
    argument: &T,
    count: libc::c_long,
) -> io::Result<()> {
    // SAFETY: the caller promises it.
    let result = unsafe {
        libc::syscall(libc::SYS_io_uring_register, ring, operation, ptr::from_ref(argument), count)
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
