//! `Refusal`: why there is no room for a version.

use std::fmt;

use device::Holder;

/// The reason that there is no room for a version on a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The device with the most room among those it may be on.
    pub device: String,
    /// The bytes that it needs there.
    pub needed_bytes: u64,
    /// The bytes that nobody holds or was promised.
    pub free_bytes: u64,
    /// Those that hold the most there; on external GPUs, those that were promised memory.
    pub holders: Vec<(Holder, u64)>,
    /// Those that are being loaded there, and the bytes that they will take.
    pub promised: Vec<(Holder, u64)>,
    /// The figures that only one sort of device has.
    pub figures: Figures,
    /// The model's own limit, if that is too small by itself, and the setting that says it.
    pub own_limit: Option<(u64, &'static str)>,
    /// The limit and the reservations of the device, with the settings that say so.
    pub settings: Vec<String>,
    /// The bytes that the version's worker holds by itself, if they matter.
    pub worker_bytes: Option<u64>,
}

/// The figures of a refusal that only one sort of device has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Figures {
    /// Those of our own devices.
    Own {
        /// The bytes that other models hold there.
        evictable_bytes: u64,
        /// The bytes that runs of the models there may still take, which is promised to them.
        runs_bytes: u64,
    },
    /// Those of GPUs that only TensorFlow can use: the parts of the bytes that are needed.
    External {
        /// The version's variables.
        weights_bytes: u64,
        /// The bytes that are reserved for it at least.
        reserved_bytes: u64,
        /// The part of its worker that counts for it.
        context_bytes: u64,
    },
    /// A worker's own memory, of which so many bytes have no room on the host.
    Worker {
        /// The bytes without room.
        missing_bytes: u64,
    },
}

/// The number of holders that a refusal names, and of loads.
const N_HOLDERS: usize = 5;

impl Refusal {
    /// A refusal of a version that may be on no device there is.
    pub(crate) fn nowhere(needed_bytes: u64) -> Self {
        Self {
            device: "no device".to_owned(),
            needed_bytes,
            free_bytes: 0,
            holders: Vec::new(),
            promised: Vec::new(),
            figures: Figures::Own { evictable_bytes: 0, runs_bytes: 0 },
            own_limit: None,
            settings: Vec::new(),
            worker_bytes: None,
        }
    }

    /// A refusal of a worker that the host has no room for.
    pub(crate) fn of_worker(device: &str, missing_bytes: u64, worker_bytes: u64) -> Self {
        let figures = Figures::Worker { missing_bytes };
        let device = device.to_owned();
        Self { device, figures, worker_bytes: Some(worker_bytes), ..Self::nowhere(missing_bytes) }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.figures {
            Figures::Own { evictable_bytes, runs_bytes } => {
                self.fmt_own(f, evictable_bytes, runs_bytes)?;
            }
            Figures::External { weights_bytes, reserved_bytes, context_bytes } => {
                let Self { device, needed_bytes, free_bytes, .. } = self;
                let promised = [&self.holders[..], &self.promised].concat();
                let promised = list(&promised, usize::MAX);
                write!(
                    f,
                    "{device} has no room: {needed_bytes} bytes are needed ({weights_bytes} for \
                     variables, {reserved_bytes} reserved, {context_bytes} for a worker), \
                     {free_bytes} are free; promised to {}",
                    if promised.is_empty() { "nobody" } else { &promised },
                )?;
            }
            Figures::Worker { missing_bytes } => {
                let (device, bytes) = (&self.device, self.worker_bytes.unwrap_or(0));
                return write!(
                    f,
                    "{device} has no room for {missing_bytes} of the {bytes} bytes of its worker"
                );
            }
        }
        self.settings.iter().try_for_each(|setting| write!(f, "; {setting}"))?;
        self.worker_bytes.map_or(Ok(()), |bytes| write!(f, " ({bytes} bytes are its worker's)"))
    }
}

impl Refusal {
    fn fmt_own(
        &self,
        f: &mut fmt::Formatter<'_>,
        evictable_bytes: u64,
        runs_bytes: u64,
    ) -> fmt::Result {
        let Self { device, needed_bytes, free_bytes, .. } = self;
        write!(
            f,
            "{device} has no room: {needed_bytes} bytes are needed, {free_bytes} are free and \
             {evictable_bytes} would be if other models were unloaded"
        )?;
        if !self.holders.is_empty() {
            write!(f, "; held by {}", list(&self.holders, N_HOLDERS))?;
        }
        if !self.promised.is_empty() {
            write!(f, "; promised to loads under way: {}", list(&self.promised, N_HOLDERS))?;
        }
        if runs_bytes > 0 {
            write!(f, "; promised to runs of the models there: {runs_bytes}")?;
        }
        match self.own_limit {
            Some((limit, setting)) => {
                write!(f, "; the model itself may hold {limit} there at most ({setting})")
            }
            None => Ok(()),
        }
    }
}

/// The first few holders with their bytes.
fn list(all: &[(Holder, u64)], n_max: usize) -> String {
    let first = all.iter().take(n_max).map(|(holder, bytes)| format!("{holder} {bytes}"));
    first.collect::<Vec<_>>().join(", ")
}
