"""The box in which a learner's code runs; read `confine` first. `linux` has the system calls for it."""
