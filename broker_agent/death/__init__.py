"""Death certificates: a watcher proves that a broker process has ended, and reports it to the controllers."""
