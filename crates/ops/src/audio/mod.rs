//! Sound: reading WAV files and the features that speech models take.

mod mfcc;
mod spectrogram;
mod wav;

use crate::op::OpDef;

/// The ops of this family.
pub(crate) const OPS: &[OpDef] = &[mfcc::DEF, spectrogram::DEF, wav::DEF];
