//! The room for everything between nodes. It is empty in this version: a world over several nodes
//! ends at start-up with an error that says so.
