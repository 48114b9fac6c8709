"""The box in which a learner's code runs; read `confine` first. `linux` is the kernel's calls for it."""
