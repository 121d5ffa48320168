"""Replays cascade plans with torch; the gradient is that of one process, whatever the plan.

The public names; importing them loads no torch:

- ``job``: ``ReplayJob``, ``ReplayIteration``, ``check_world_size``; ``job_json``: their JSON form.
- ``model_config``: ``ModelChoice``, ``ModelConfig``.
- ``report``: ``ReplayReport`` and ``run_records``, ``measurements`` for the database.
- ``launch``: ``compose(job_path, world_size, report_path)`` and
  ``run_local(job, world_size, on_progress=...)``.
- ``measure``: ``MeasureJob`` and ``measure_local(job, world_size, on_progress=...)``.

``trainer.CascadeTrainer`` runs inside each rank; it and everything below it needs torch.
"""
