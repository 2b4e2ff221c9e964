//! How bytes move. In this version by copy-in and copy-out (`cico`) alone.

pub(crate) mod cico;
