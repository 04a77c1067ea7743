"""Which test shows, for each argument of each public callable, that it changes something or is refused; test_every_argument.py
holds the tables to it."""

from __future__ import annotations


class Because(str):
    """Why an argument needs no test: it is there for another's interface, and has nothing to change here."""


OWN = "test_every_argument"
MP = "test_mp_arguments"
VECTOR = "test_vector_arguments"
COMPAT = "test_compat_gymnasium"
SB3 = "test_compat_sb3"
SB3_WORKERS = "test_compat_sb3_workers"
ENVPOOL = "test_compat_envpool"
CLEANRL = "test_compat_cleanrl"
PETTINGZOO = "test_compat_pettingzoo"
MOOLIB = "test_compat_moolib"
MODULES = "test_learn_modules"
MODULES_REFUSED = "test_learn_modules_refused"
RECURRENT = "test_learn_recurrent"
ATARI = "test_atari"
REMOTE = "test_learn_remote"

OF_CPYTHON = Because("CPython's: what it makes here belongs to no context")
ANSWERED = Because("ServiceModel's: a local model has answered, or raised, when the call returns")

TRAIN = {
    "env": "test_learn_train::test_a_factory_that_is_no_id_is_given_again_for_evaluation",
    "algorithm": f"{OWN}::test_an_unknown_algorithm_is_refused",
    "policy": f"{MODULES}::test_a_policy_is_loaded_by_its_import_path",
    "device": f"{MODULES_REFUSED}::test_a_bad_option_is_one_clear_error_before_anything_starts",
    "seed run_dir": "test_learn_train::test_a_run_leaves_its_directory_behind",
    "total_steps num_envs": "test_learn_env_options::test_train_takes_them_and_evaluate_may_be_told_others",
    "preset": "test_learn_resume::test_resume_says_what_is_wrong",
    "resume": "test_learn_resume::test_stopped_and_resumed_in_workers_equals_uninterrupted",
    "env_kwargs max_episode_steps frame_stack reward_clip wrappers": (
        "test_learn_env_options::test_train_takes_them_and_evaluate_may_be_told_others"
    ),
    "atari": f"{ATARI}::test_another_way_of_scaling_rewards_goes_before_the_default_sign",
    "config": "test_learn_zoo::test_a_run_is_trained_by_it_and_other_arguments_go_before",
    "nproc": "test_learn_ranks::test_two_processes_give_the_bits_of_one",
    "listen": f"{REMOTE}::test_a_run_learns_from_collectors_of_other_processes",
    "num_workers backend context": f"{OWN}::test_training_is_where_and_how_it_was_asked_to_be",
    "overrides": "test_learn_train::test_a_bad_option_is_one_clear_error_before_anything_starts",
}

# By callable: arguments (some together), and the test that shows what they do.
PROOF: dict[str, dict[str, str]] = {
    # --- vector environments
    "make_vec": {
        "env": "test_vector_errors::test_an_instance_is_refused_with_the_fix",
        "num_envs": "test_vector_errors::test_a_wrong_argument_is_named_with_its_choices",
        "num_workers": "test_vector_calls::test_the_environments_of_the_process_backend_are_in_other_processes",
        "context": "test_worker_options::test_native_workers_start_as_asked",
        "backend": "test_vector_errors::test_a_wrong_argument_is_named_with_its_choices",
        "autoreset_mode": "test_vector_conformance::test_same_step_mode_keeps_the_last_observation_as_a_copy_of_its_own",
        "env_kwargs": "test_vector_native::test_keyword_arguments_reach_the_environments",
        "seed": f"{OWN}::test_a_seed_is_that_of_the_first_reset",
        "copy": "test_vector_conformance::test_copy_false_gives_live_views_that_outlive_the_environments",
        "timeout": "test_worker_options::test_one_environment_that_hangs_is_late",
        "on_fault": "test_async::test_with_restart_what_fails_comes_back_as_a_fault",
        "setup": "test_config::test_setup_runs_once_in_each_worker_before_its_environments",
        "config": "test_config::test_what_the_parent_has_set_is_in_place_in_the_workers",
        "episode_statistics max_episode_steps frame_stack reward_clip": (
            "test_vector_episodes::test_all_of_it_on_an_environment_of_ones_own"
        ),
        "wrappers": "test_worker_options::test_wrappers_are_put_around_every_environment_the_first_innermost",
        "batch_size": "test_async::test_the_first_that_are_ready_come_first",
        "cohorts": "test_async::test_every_environment_has_the_trajectory_of_synchronous_steps",
        "max_in_flight": "test_async::test_max_in_flight_bounds_what_is_out",
        "pool": "test_gpu_hygiene::test_a_worker_pool_leases_too",
        "worker": "test_vector_processes::test_workers_have_the_threads_and_variables_they_were_given",
        "atari": f"{ATARI}::test_a_time_limit_counts_steps_of_a_game_and_bounds_of_rewards_take_the_place_of_signs",
        "unknown": f"{OWN}::test_an_unknown_argument_is_refused",
    },
    "AtariPreprocessing": {
        "noop_max frame_skip max_pool terminal_on_life_loss stop_at_life_loss fire_reset screen_size grayscale_obs frame_stack"
        " clip_reward pixels padding_type whole_games": f"{ATARI}::test_every_switch_changes_what_is_seen_or_when_an_episode_ends",
    },
    "AtariPreprocessing.like": {"library switches": f"{ATARI}::test_like_takes_switches_and_says_all_of_them"},
    "atari.AtariEnv": {
        "env max_episode_steps preprocessing": f"{ATARI}::test_a_limit_of_steps_truncates_the_game_and_not_the_life",
        "env_kwargs": f"{ATARI}::test_a_wrapper_and_a_program_see_the_games_own_parts",
    },
    "atari.AtariEnv.reset": {
        "seed options": f"{ATARI}::test_a_reset_in_the_middle_or_with_a_seed_begins_a_new_game",
    },
    "atari.AtariEnv.step": {"action": f"{ATARI}::test_a_reset_in_the_middle_or_with_a_seed_begins_a_new_game"},
    "WorkerOptions": {
        "threads": "test_vector_processes::test_workers_have_the_threads_and_variables_they_were_given",
        "gpu": "test_gpu_hygiene::test_leased_gpus_are_spread_over_workers_and_come_back_from_the_dead",
        "affinity": "test_worker_options::test_a_list_of_cpus_is_dealt_out_to_the_workers",
        "preload": f"{OWN}::test_a_preload_is_there_before_the_environments",
        "env": "test_worker_options::test_native_workers_have_the_variables_and_threads_they_were_given",
        "config": "test_config::test_options_take_it_too_but_not_twice",
        "models model_device": "test_serve_local::test_workers_load_theirs_on_the_device_that_was_named",
        "nested": "test_worker_options::test_workers_without_nested_start_no_processes",
        "shared_bytes": "test_identity::test_what_does_not_fit_is_refused_and_nothing_is_lost",
        "memory_limit": "test_worker_options::test_native_workers_over_their_memory_limit_are_replaced",
        "memory_hard_limit": "test_worker_options::test_native_workers_over_their_hard_limit_are_killed",
        "start_timeout": f"{OWN}::test_an_environment_that_is_not_built_within_start_timeout_is_an_error",
        "allow_unsafe_fork": "test_vector_processes::test_fork_inherits_what_cannot_be_pickled",
    },
    "FaultPolicy": {
        "on_fault": "test_vector_faults::test_too_many_faults_tell_of_each_with_its_cause",
        "max_restarts": "test_vector_faults::test_too_many_faults_tell_of_each_with_its_cause",
        "restart_window": f"{OWN}::test_faults_outside_the_restart_window_are_forgotten",
        "backoff max_backoff": "test_vector_faults::test_a_place_that_fails_again_waits_while_the_others_go_on",
        "start_timeout": "test_vector_faults::test_an_environment_that_hangs_while_it_is_built_is_an_error_with_its_stack",
        "reset_timeout": "test_vector_faults::test_a_hung_reset_has_a_deadline_of_its_own",
        "step_timeout": "test_async_faults::test_a_hang_raises_with_the_python_stack",
    },
    "WorkerPool": {
        "num_workers": "test_async::test_vector_environments_share_the_workers_and_close_apart",
        "context": f"{OWN}::test_the_workers_of_a_pool_start_as_asked",
        "worker": "test_worker_options::test_a_list_of_cpus_is_dealt_out_to_the_workers",
    },
    "VectorEnv.reset": {
        "seed": "test_vector_reset::test_an_int_seeds_environment_i_with_seed_plus_i",
        "options": "test_vector_reset::test_options_reach_every_environment_as_they_are",
    },
    "VectorEnv.reset_async": {"seed options": f"{VECTOR}::test_every_way_to_reset_hands_on_seeds_and_options"},
    "VectorEnv.reset_wait": {"timeout": f"{VECTOR}::test_every_wait_has_a_timeout"},
    "VectorEnv.step": {"actions": "test_vector_calls::test_closures_and_local_classes_travel_to_the_workers"},
    "VectorEnv.step_async": {"actions": "test_vector_calls::test_calls_in_the_wrong_order_are_refused"},
    "VectorEnv.step_wait": {"timeout": "test_vector_faults::test_the_timeout_of_a_call_leaves_it_under_way"},
    "VectorEnv.call": {"name args kwargs": "test_vector_calls::test_call_gives_a_tuple_with_one_result_an_environment"},
    "VectorEnv.call_async": {"name args kwargs": "test_vector_calls::test_a_call_may_be_begun_and_waited_for"},
    "VectorEnv.call_wait": {"timeout": "test_vector_calls::test_a_call_that_takes_too_long_stays_under_way"},
    "VectorEnv.get_attr": {"name": "test_vector_calls::test_attributes_are_set_one_by_one_or_all_alike"},
    "VectorEnv.set_attr": {"name values": "test_vector_calls::test_attributes_are_set_one_by_one_or_all_alike"},
    "VectorEnv.counter": {"name": "test_identity::test_counters_are_seen_by_the_parent"},
    "VectorEnv.close": {"kwargs": "test_vector_calls::test_closing_ends_a_worker_that_does_not_come_back"},
    "VectorEnv.close_extras": {
        "timeout terminate": "test_vector_calls::test_closing_ends_a_worker_that_does_not_come_back",
    },
    "VectorEnv.async_reset": {"seed options": f"{VECTOR}::test_every_way_to_reset_hands_on_seeds_and_options"},
    "VectorEnv.send": {"actions env_ids": "test_async::test_without_batch_size_a_batch_is_all_of_them"},
    "VectorEnv.recv": {"timeout": f"{VECTOR}::test_every_wait_has_a_timeout"},
    "VectorEnv.recv_async": {"timeout": "test_asyncio::test_a_timeout_leaves_them_in_flight"},
    "VectorEnv.snapshot": {"ids": "test_vector_snapshots::test_only_those_that_are_named_go_back"},
    "VectorEnv.restore": {
        "snapshot ids": "test_vector_snapshots::test_another_vector_environment_goes_on_from_a_snapshot",
    },
    "VectorEnv.clone": {"src dst": "test_vector_snapshots::test_environments_become_each_other"},
    "vector.AsyncVectorEnv.reset": {"seed options": f"{VECTOR}::test_every_way_to_reset_hands_on_seeds_and_options"},
    "vector.AsyncVectorEnv.reset_async": {
        "seed options": f"{VECTOR}::test_every_way_to_reset_hands_on_seeds_and_options",
    },
    "vector.AsyncVectorEnv.async_reset": {
        "seed": "test_async::test_every_environment_has_the_trajectory_of_synchronous_steps",
        "options": "test_async::test_infos_come_with_their_environment",
    },
    "vector.AsyncVectorEnv.send": {
        "actions env_ids": "test_async::test_a_late_environment_is_named_and_may_be_waited_for_again",
    },
    "vector.AsyncVectorEnv.recv": {
        "timeout": "test_async::test_a_late_environment_is_named_and_may_be_waited_for_again",
    },
    "vector.AsyncVectorEnv.step": {"actions env_ids": f"{VECTOR}::test_what_is_in_flight_is_thrown_away_in_time"},
    "vector.AsyncVectorEnv.discard": {"timeout": f"{VECTOR}::test_what_is_in_flight_is_thrown_away_in_time"},
    # --- experience
    "Collector": {
        "env policy frames_per_batch": "test_collect::test_what_does_not_fit_is_one_clear_error",
        "num_envs total_frames": "test_collect::test_the_last_batch_is_shorter_and_then_the_iteration_ends",
        "seed num_workers": "test_collect_policies::test_the_same_seed_gives_the_same_batches_for_any_number_of_workers",
        "next_obs": "test_collect::test_a_batch_tells_what_happened_row_by_row",
        "init_random_frames": "test_collect::test_the_first_frames_are_random_where_asked_for",
        "max_frames_per_traj": "test_collect::test_episodes_are_cut_at_max_frames_per_traj",
        "split_trajectories": "test_collect::test_split_trajectories_are_padded_rows_of_the_same_frames",
        "mode num_collectors policy_batch": (
            "test_collect_multi::test_the_same_seed_gives_the_same_batches_for_any_number_of_collectors"
        ),
        "cohorts": "test_collect_policies::test_cohorts_give_the_same_batches_for_any_number_of_workers",
        "preemptive_threshold": (
            "test_collect_multi::test_with_a_preemptive_threshold_stragglers_stop_and_go_on_in_the_next_batch"
        ),
        "action_mask": "test_collect_multi::test_masked_actions_are_neither_drawn_nor_taken_from_a_policy",
        "ahead": "test_collect_multi::test_a_collector_is_never_further_ahead_than_it_may",
        "output": "test_collect::test_what_does_not_fit_is_one_clear_error",
        "device": "test_collect_multi::test_tensors_lie_on_the_device_that_is_asked_for",
        "backend context env_kwargs wrappers worker": "test_collect::test_environments_are_built_as_asked",
        "max_episode_steps frame_stack reward_clip": (
            "test_collect::test_episodes_stacks_and_rewards_are_as_make_vec_has_them"
        ),
        "on_fault": "test_collect::test_a_dead_worker_is_an_error_or_rows_that_are_counted_as_lost",
        "timeout": "test_collect::test_a_step_that_takes_too_long_is_an_error",
        "atari": f"{ATARI}::test_a_collector_takes_it",
    },
    "Collector.reset": {"seed": "test_collect::test_after_a_failure_a_reset_makes_it_usable_again"},
    "Collector.update_weights": {
        "weights": "test_collect_policies::test_updates_of_a_network_take_its_weights_and_are_counted",
    },
    "Collector.load_state_dict": {"state": "test_collect::test_a_state_dict_goes_on_with_the_same_batches"},
    # --- who a worker is
    "Counter.add": {"n": "test_identity::test_a_plain_process_is_worker_zero_of_one"},
    "Counter.set": {"value": "test_identity::test_counters_are_seen_by_the_parent"},
    "SharedDict.setdefault": {"name default": "test_identity::test_it_is_a_dict"},
    "SharedDict.update": {"other named": "test_identity::test_it_is_a_dict"},
    "SharedDict.change": {"name function default": "test_identity::test_changes_of_all_workers_add_up"},
    "SharedDict.pop": {"name default": "test_identity::test_it_is_a_dict"},
    "Snapshot": {"thing leave_out": "test_config::test_worker_config_has_the_things_by_name"},
    "Worker.counter": {"name": "test_identity::test_a_plain_process_is_worker_zero_of_one"},
    "Worker.model": {"name": "test_serve::test_errors_are_those_of_a_service"},
    "Worker.lease_port": {"range kind": "test_identity::test_a_lease_is_an_int_that_lasts_until_it_is_released"},
    # --- model services
    "ModelService": {
        "models": "test_serve::test_arguments_are_checked_before_anything_starts",
        "device": "test_serve_cuda::test_no_device_is_one_clear_error",
        "max_batch": "test_serve::test_buckets_pad_with_the_first_row",
        "max_delay": "test_serve::test_max_delay_waits_for_the_quorum",
        "instances": "test_serve::test_several_instances_share_the_clients",
        "buckets": "test_serve::test_buckets_pad_with_the_first_row",
        "keep_versions": "test_serve_weights::test_a_pinned_version_stays",
        "timeout": f"{OWN}::test_a_service_has_a_deadline_for_requests_that_name_none",
        "context": "test_serve_local::test_a_service_in_a_thread_refuses_what_only_a_process_could_honour",
        "threads preload": f"{OWN}::test_a_server_has_the_threads_and_modules_it_was_given",
        "on_fault": "test_serve_death::test_with_restart_another_server_takes_its_place",
        "start_timeout": f"{OWN}::test_a_model_that_is_not_loaded_within_start_timeout_is_an_error",
        "listen secret": "test_serve_remote::test_another_secret_is_refused_on_both_sides",
    },
    "ModelService.connect": {
        "address secret": "test_serve_remote::test_another_secret_is_refused_on_both_sides",
        "timeout": "test_serve_remote::test_requests_end_at_their_deadline_or_when_they_are_cancelled",
        "on_fault": "test_serve_remote::test_with_restart_a_service_that_comes_again_is_asked_again",
        "start_timeout": "test_serve_remote::test_an_address_where_nobody_answers_is_one_error",
    },
    "serve.RemoteService.update": {
        "name state version mode": (
            "test_serve_remote::test_replies_name_the_weights_which_may_be_pinned_and_are_updated_there"
        ),
    },
    "ModelService.model": {"name": "test_serve::test_an_unknown_model_is_named"},
    "ModelService.update": {
        "name state version mode": "test_serve_weights::test_an_update_is_seen_by_the_next_request",
    },
    "ModelService.write_scalars": {"writer step": "test_serve_observing::test_scalars_for_tensorboard"},
    "serve.ServiceModel.__call__": {
        "args": "test_serve::test_a_row_in_a_row_out",
        "timeout": "test_serve::test_the_deadline_of_a_request",
        "reset": "test_serve_recurrent::test_the_state_goes_from_row_to_row_until_a_reset",
        "kwargs": f"{OWN}::test_every_way_to_ask_takes_keywords",
    },
    "serve.ServiceModel.batch": {
        "args kwargs": f"{OWN}::test_every_way_to_ask_takes_keywords",
        "timeout": f"{OWN}::test_a_service_is_waited_for_as_long_as_is_said",
    },
    "serve.ServiceModel.submit": {
        "args kwargs batched": f"{OWN}::test_every_way_to_ask_takes_keywords",
        "timeout": f"{OWN}::test_a_service_is_waited_for_as_long_as_is_said",
        "reset": "test_serve_recurrent::test_requests_in_flight_follow_each_other",
        "wait": "test_serve::test_the_deadline_of_a_request",
    },
    "serve.ServiceModel.pin": {"version": "test_serve_weights::test_a_pinned_version_stays"},
    "serve.ServiceModel.gather": {
        "replies": "test_serve_replies::test_submit_and_gather",
        "timeout": f"{OWN}::test_a_service_is_waited_for_as_long_as_is_said",
    },
    "serve.Reply.result": {"timeout": f"{OWN}::test_a_service_is_waited_for_as_long_as_is_said"},
    "serve.LocalModel.__call__": {
        "args kwargs": f"{OWN}::test_every_way_to_ask_takes_keywords",
        "timeout": "test_serve_local::test_a_call_that_takes_longer_than_its_timeout_is_exceeded",
        "reset": "test_serve_recurrent::test_the_state_goes_from_row_to_row_until_a_reset",
    },
    "serve.LocalModel.batch": {
        "args kwargs": f"{OWN}::test_every_way_to_ask_takes_keywords",
        "timeout": "test_serve_local::test_a_call_that_takes_longer_than_its_timeout_is_exceeded",
    },
    "serve.LocalModel.submit": {
        "args kwargs batched": f"{OWN}::test_every_way_to_ask_takes_keywords",
        "timeout": "test_serve_local::test_a_call_that_takes_longer_than_its_timeout_is_exceeded",
        "reset": "test_serve_recurrent::test_requests_in_flight_follow_each_other",
        "wait": ANSWERED,
    },
    "serve.LocalModel.pin": {"version": f"{OWN}::test_a_local_model_has_one_version"},
    "serve.LocalModel.gather": {
        "replies": "test_serve_recurrent::test_requests_in_flight_follow_each_other",
        "timeout": ANSWERED,
    },
    "serve.Recurrent": {
        "model initial_state": "test_serve_recurrent::test_the_state_goes_from_row_to_row_until_a_reset",
    },
    "serve.use": {
        "models": "test_serve_local::test_a_call_that_takes_longer_than_its_timeout_is_exceeded",
        "device": "test_serve_local::test_models_compute_on_the_device_that_was_named",
    },
    # --- multiprocessing
    "multiprocessing.Options": {
        "threads gpu env": "test_mp_context::test_options_of_a_context",
        "preload": f"{OWN}::test_a_context_preloads",
        "allow_unsafe_fork": "test_mp_context::test_fork_is_refused_where_native_threads_run",
    },
    "multiprocessing.get_context": {"method options": "test_mp_context::test_get_context_knows_its_methods"},
    "multiprocessing.get_start_method": {
        "allow_none": "test_mp_context::test_a_second_set_start_method_names_the_first"
    },
    "multiprocessing.set_start_method": {
        "method force": "test_mp_context::test_a_second_set_start_method_names_the_first",
    },
    "multiprocessing.set_forkserver_preload": {
        "module_names": "test_mp_context::test_a_preload_that_fails_is_told_by_start",
    },
    "multiprocessing.Process": {
        "group": f"{MP}::test_a_group_is_refused",
        "target args": "test_mp_context::test_exit_codes_are_cpythons",
        "kwargs": f"{MP}::test_keyword_arguments_reach_the_target",
        "name daemon": "test_mp_context::test_a_process_knows_its_name_and_its_parent",
        "threads": "test_mp_process_options::test_threads_of_one_process",
        "seed": "test_mp_process_options::test_a_seed_makes_the_numbers_that_a_process_draws",
        "affinity": "test_mp_process_options::test_affinity_confines_a_process",
        "relay": "test_mp_process_options::test_a_relayed_process_prints_with_its_name",
    },
    "multiprocessing.start_processes": {
        "fn args nprocs start_method": "test_mp_spawn::test_each_process_gets_its_index",
        "join daemon": f"{MP}::test_processes_may_be_daemons_and_be_joined_later",
    },
    "multiprocessing.spawn": {
        "fn args nprocs join daemon": f"{MP}::test_processes_may_be_daemons_and_be_joined_later",
        "start_method": "test_mp_spawn::test_spawn_warns_of_another_method_and_its_old_name_of_the_context",
    },
    "multiprocessing.ProcessContext.join": {
        "timeout": f"{MP}::test_a_group_is_waited_for_as_long_as_is_said",
        "grace_period": f"{MP}::test_the_others_have_their_grace_to_end_by_themselves",
    },
    "multiprocessing.Pool": {
        "processes initializer initargs maxtasksperchild options": f"{MP}::test_a_pool_of_a_context_has_its_arguments",
    },
    "multiprocessing.pool.Pool": {
        "processes": "test_mp_pool::test_with_terminates_and_join_needs_an_end",
        "initializer initargs": "test_mp_pool::test_an_initializer_that_raises_is_an_error_of_every_call",
        "maxtasksperchild": "test_mp_pool::test_workers_are_replaced_after_maxtasksperchild",
        "context threads": f"{MP}::test_the_workers_of_a_pool_are_of_its_context_with_its_threads",
        "seed": "test_mp_pool::test_the_same_seed_gives_the_same_workers",
        "affinity": "test_mp_pool::test_affinity_confines_workers",
        "relay": "test_mp_logging::test_the_workers_of_a_pool_are_relayed_and_a_dead_one_has_its_last_lines",
    },
    "multiprocessing.pool.Pool.apply": {
        "func args kwds": "test_mp_pool::test_map_and_its_kin_return_what_a_loop_returns",
    },
    "multiprocessing.pool.Pool.apply_async": {
        "func args": "test_mp_pool::test_map_and_its_kin_return_what_a_loop_returns",
        "kwds": f"{MP}::test_results_are_asked_for_in_every_way",
        "callback": "test_mp_pool::test_callbacks_are_called_before_the_result_is_ready",
        "error_callback": "test_mp_pool::test_a_result_that_cannot_be_pickled_is_an_error_that_shows_it",
    },
    "multiprocessing.pool.Pool.map": {
        "func iterable": "test_mp_pool::test_map_and_its_kin_return_what_a_loop_returns",
        "chunksize": "test_mp_pool::test_workers_are_replaced_after_maxtasksperchild",
    },
    "multiprocessing.pool.Pool.map_async": {
        "func iterable": "test_mp_pool::test_map_and_its_kin_return_what_a_loop_returns",
        "chunksize": f"{MP}::test_a_chunk_is_one_task",
        "callback error_callback": "test_mp_pool::test_callbacks_are_called_before_the_result_is_ready",
    },
    "multiprocessing.pool.Pool.starmap": {
        "func iterable": "test_mp_pool::test_map_and_its_kin_return_what_a_loop_returns",
        "chunksize": f"{MP}::test_a_chunk_is_one_task",
    },
    "multiprocessing.pool.Pool.starmap_async": {
        "func iterable": "test_mp_pool::test_map_and_its_kin_return_what_a_loop_returns",
        "chunksize": f"{MP}::test_a_chunk_is_one_task",
        "callback error_callback": f"{MP}::test_results_are_asked_for_in_every_way",
    },
    "multiprocessing.pool.Pool.imap": {
        "func iterable": "test_mp_pool::test_imap_is_in_order_and_imap_unordered_is_complete",
        "chunksize": f"{MP}::test_a_chunk_is_one_task",
    },
    "multiprocessing.pool.Pool.imap_unordered": {
        "func iterable": "test_mp_pool::test_imap_is_in_order_and_imap_unordered_is_complete",
        "chunksize": f"{MP}::test_a_chunk_is_one_task",
    },
    "multiprocessing.pool.ApplyResult.wait": {"timeout": f"{MP}::test_results_are_asked_for_in_every_way"},
    "multiprocessing.pool.ApplyResult.get": {
        "timeout": "test_mp_pool::test_a_result_says_whether_it_is_ready_and_how_it_went",
    },
    "multiprocessing.pool.IMapIterator.next": {"timeout": "test_mp_pool::test_next_of_imap_has_a_timeout"},
    "multiprocessing.Queue": {"maxsize": f"{MP}::test_queues_of_a_context_are_as_large_as_is_said"},
    "multiprocessing.JoinableQueue": {"maxsize": f"{MP}::test_queues_of_a_context_are_as_large_as_is_said"},
    "multiprocessing.queues.Queue": {"maxsize": "test_mp_queues::test_empty_and_full", "ctx": OF_CPYTHON},
    "multiprocessing.queues.JoinableQueue": {
        "maxsize": f"{MP}::test_queues_of_a_context_are_as_large_as_is_said",
        "ctx": OF_CPYTHON,
    },
    "multiprocessing.queues.SimpleQueue": {"ctx": OF_CPYTHON},
    "multiprocessing.queues.Queue.put": {"obj block timeout": "test_mp_queues::test_empty_and_full"},
    "multiprocessing.queues.Queue.get": {"block timeout": "test_mp_queues::test_empty_and_full"},
    "multiprocessing.queues.Queue.put_nowait": {"obj": "test_mp_queues::test_empty_and_full"},
    "multiprocessing.queues.SimpleQueue.put": {"obj": "test_mp_queues::test_an_object_comes_out_as_it_went_in"},
    "multiprocessing.Pipe": {"duplex": f"{MP}::test_a_pipe_of_a_context_has_the_directions_that_were_asked_for"},
    "multiprocessing.connection.Pipe": {"duplex": "test_mp_connection::test_a_pipe_of_one_direction"},
    "multiprocessing.connection.wait": {
        "object_list timeout": "test_mp_connection::test_wait_finds_those_that_are_ready",
    },
    "multiprocessing.connection.Connection.send": {"obj": "test_mp_connection::test_objects_and_bytes_both_ways"},
    "multiprocessing.connection.Connection.send_bytes": {
        "buf offset size": "test_mp_connection::test_objects_and_bytes_both_ways",
    },
    "multiprocessing.connection.Connection.recv_bytes": {
        "maxlength": "test_mp_connection::test_a_message_longer_than_allowed",
    },
    "multiprocessing.connection.Connection.recv_bytes_into": {
        "buf offset": "test_mp_connection::test_receiving_into_a_buffer",
    },
    "multiprocessing.connection.Connection.poll": {"timeout": "test_mp_connection::test_poll"},
    "multiprocessing.Lock": {"on_owner_died": f"{MP}::test_what_a_dead_owner_leads_to_is_one_of_three"},
    "multiprocessing.RLock": {"on_owner_died": f"{MP}::test_what_a_dead_owner_leads_to_is_one_of_three"},
    "multiprocessing.Semaphore": {
        "value": f"{MP}::test_locks_and_their_kin_of_a_context_are_as_asked_for",
        "on_owner_died": f"{MP}::test_what_a_dead_owner_leads_to_is_one_of_three",
    },
    "multiprocessing.BoundedSemaphore": {
        "value": f"{MP}::test_locks_and_their_kin_of_a_context_are_as_asked_for",
        "on_owner_died": f"{MP}::test_what_a_dead_owner_leads_to_is_one_of_three",
    },
    "multiprocessing.Condition": {"lock": f"{MP}::test_locks_and_their_kin_of_a_context_are_as_asked_for"},
    "multiprocessing.Barrier": {
        "parties action timeout": f"{MP}::test_locks_and_their_kin_of_a_context_are_as_asked_for",
    },
    "multiprocessing.synchronize.Lock": {
        "ctx": OF_CPYTHON,
        "on_owner_died": "test_mp_synchronize::test_owner_died_is_raised_where_asked_for",
    },
    "multiprocessing.synchronize.RLock": {
        "ctx": OF_CPYTHON,
        "on_owner_died": "test_mp_synchronize::test_owner_died_is_raised_where_asked_for",
    },
    "multiprocessing.synchronize.Semaphore": {
        "value": "test_mp_synchronize::test_permits_are_counted",
        "ctx": OF_CPYTHON,
        "on_owner_died": "test_mp_synchronize::test_owner_died_is_raised_where_asked_for",
    },
    "multiprocessing.synchronize.BoundedSemaphore": {
        "value": "test_mp_synchronize::test_permits_are_counted",
        "ctx": OF_CPYTHON,
        "on_owner_died": "test_mp_synchronize::test_owner_died_is_raised_where_asked_for",
    },
    "multiprocessing.synchronize.Condition": {
        "lock": "test_mp_synchronize::test_copies_are_the_same_things",
        "ctx": OF_CPYTHON,
    },
    "multiprocessing.synchronize.Event": {"ctx": OF_CPYTHON},
    "multiprocessing.synchronize.Barrier": {
        "parties action": "test_mp_synchronize::test_a_barrier_lets_all_go_on_together",
        "timeout": "test_mp_synchronize::test_a_barrier_breaks_and_is_whole_again",
        "ctx": OF_CPYTHON,
    },
    "multiprocessing.synchronize.Lock.acquire": {
        "block timeout": "test_mp_synchronize::test_a_lock_is_had_and_given_back",
    },
    "multiprocessing.synchronize.BoundedSemaphore.acquire": {
        "block timeout": "test_mp_synchronize::test_permits_are_counted",
    },
    "multiprocessing.synchronize.Condition.wait": {
        "timeout": "test_mp_synchronize::test_a_condition_wakes_as_many_as_it_is_told",
    },
    "multiprocessing.synchronize.Condition.wait_for": {
        "predicate timeout": "test_mp_synchronize::test_a_condition_wakes_as_many_as_it_is_told",
    },
    "multiprocessing.synchronize.Condition.notify": {
        "n": "test_mp_synchronize::test_a_condition_wakes_as_many_as_it_is_told",
    },
    "multiprocessing.synchronize.Event.wait": {
        "timeout": "test_mp_synchronize::test_an_event_is_seen_by_threads_and_processes",
    },
    "multiprocessing.synchronize.Barrier.wait": {
        "timeout": f"{MP}::test_locks_and_their_kin_of_a_context_are_as_asked_for",
    },
    "multiprocessing.Value": {
        "typecode_or_type args lock": f"{MP}::test_values_and_arrays_of_a_context_are_as_asked_for",
    },
    "multiprocessing.Array": {
        "typecode_or_type size_or_initializer lock": f"{MP}::test_values_and_arrays_of_a_context_are_as_asked_for",
    },
    "multiprocessing.RawValue": {
        "typecode_or_type args": f"{MP}::test_values_and_arrays_of_a_context_are_as_asked_for",
    },
    "multiprocessing.RawArray": {
        "typecode_or_type size_or_initializer": f"{MP}::test_values_and_arrays_of_a_context_are_as_asked_for",
    },
    "multiprocessing.SharedArray": {
        "source dtype": "test_mp_reduction::test_shared_arrays_are_made_of_shapes_and_of_values",
    },
    "multiprocessing.SharedTensor": {"data options": "test_mp_tensors::test_shared_tensor_takes_tensors_and_data"},
    "multiprocessing.is_shared": {"obj": "test_mp_tensors::test_a_tensor_moves_in_place"},
    "multiprocessing.share_memory_": {
        "obj": "test_mp_tensors::test_share_memory_is_idempotent_and_returns_what_it_was_given",
    },
    "share_module": {"module": "test_mp_tensors::test_share_module_moves_parameters_and_buffers_and_keeps_ties"},
    "multiprocessing.set_sharing_strategy": {
        "new_strategy": "test_mp_tensors::test_sharing_strategies_are_those_of_torch_and_ours",
    },
    "multiprocessing.LogRelay": {"tag": "test_mp_logging::test_the_tag_can_be_left_out"},
    "multiprocessing.LogRelay.attach": {
        "worker": "test_mp_logging::test_output_comes_by_lines_with_the_name_of_the_process",
    },
    "multiprocessing.LogRelay.tail": {
        "pid": "test_mp_logging::test_output_comes_by_lines_with_the_name_of_the_process",
    },
    "multiprocessing.LogRelay.drain": {"pid timeout": f"{MP}::test_a_relay_is_drained_for_as_long_as_is_said"},
    # --- processes
    "process.launcher": {
        "context allow_unsafe_fork": (
            "test_process_zygote::test_fork_is_refused_after_cuda_is_initialised_and_the_others_are_not"
        ),
        "preload": "test_process_zygote::test_launchers_are_kept_for_their_options",
        "threads hide_gpu env": f"{OWN}::test_a_launcher_that_is_kept_starts_workers_as_asked",
        "start_timeout": f"{OWN}::test_a_zygote_that_is_not_ready_within_start_timeout_is_an_error",
        "plain": Because("for shoal.multiprocessing alone, each of whose tests of processes needs it"),
    },
    "process.Launcher": {
        "context threads env allow_unsafe_fork": (
            "test_process_workers::test_launchers_variables_and_gpus_do_not_reach_workers"
        ),
        "preload": "test_process_zygote::test_the_preload_is_imported_once_and_shared",
        "hide_gpu": "test_process_zygote::test_a_preload_that_uses_a_gpu_is_refused",
        "start_timeout": f"{OWN}::test_a_zygote_that_is_not_ready_within_start_timeout_is_an_error",
        "relay_output": f"{OWN}::test_what_workers_print_is_relayed_where_that_is_asked_for",
        "ahead": f"{OWN}::test_a_zygote_may_begin_before_its_preload_is_known",
        "plain": Because("for shoal.multiprocessing alone, each of whose tests of processes needs it"),
    },
    "process.Launcher.start": {
        "calls": "test_process_workers::test_a_worker_knows_itself_and_its_arguments",
        "name numbers": "test_process_workers::test_workers_are_called_as_their_starter_says",
    },
    "process.WorkerContext.send": {
        "message timeout": f"{OWN}::test_a_worker_waits_for_its_parent_as_long_as_is_said",
    },
    "process.WorkerContext.recv": {"timeout": f"{OWN}::test_a_worker_waits_for_its_parent_as_long_as_is_said"},
    "process.WorkerProcess.join": {
        "timeout": "test_process_workers::test_a_wait_for_a_silent_worker_ends_at_its_deadline",
    },
    "process.WorkerProcess.kill": {"signal": "test_process_workers::test_workers_ignore_ctrl_c"},
    "process.WorkerProcess.send": {
        "message timeout": "test_process_workers::test_a_wait_for_a_silent_worker_ends_at_its_deadline",
    },
    "process.WorkerProcess.recv": {
        "timeout": "test_process_workers::test_a_wait_for_a_silent_worker_ends_at_its_deadline",
    },
    "process.fork_hazards": {"threads": f"{OWN}::test_threads_are_no_hazard_where_they_are_left_out"},
    "process.keep_idle_zygotes": {"count seconds": "test_idle_zygotes::test_other_limits_are_refused"},
    # --- learning
    "learn.train": {**TRAIN, "callback": "test_learn_train::test_callback_sees_the_status_and_may_stop_the_run"},
    "learn.Trainer": TRAIN,
    "learn.collect": {
        "secret": f"{REMOTE}::test_who_does_not_belong_here_is_refused",
        "address callback wait": f"{REMOTE}::test_a_learner_that_is_killed_is_one_error_or_waited_for",
        "num_collectors num_workers backend context": (
            f"{REMOTE}::test_several_collectors_are_processes_with_environments_where_they_are_asked_to_be"
        ),
    },
    "learn.Trainer.wait": {"timeout": "test_learn_train::test_stop_from_another_thread"},
    "learn.load_policy": {
        "run_dir which": "test_learn_policy::test_which_policy",
        "policy": f"{MODULES}::test_a_module_is_trained_where_it_is_and_given_again_to_load",
        "device": f"{MODULES_REFUSED}::test_a_device_that_is_not_there_is_refused_of_a_loaded_policy",
    },
    "learn.Policy.predict": {
        "observation deterministic": "test_learn_policy::test_predict_deterministically_and_by_chance",
        "is_first": f"{RECURRENT}::test_a_policy_remembers_its_episode_until_another_begins",
    },
    "learn.ModulePolicy.predict": {
        "observation": f"{MODULES}::test_a_policy_is_loaded_by_its_import_path",
        "is_first": f"{MODULES}::test_a_recurrent_module_learns_to_remember",
        "deterministic": f"{MODULES}::test_a_module_without_mode_is_sampled_from_unless_that_is_asked_for",
    },
    "learn.torch_policy": {"run_dir which": f"{OWN}::test_a_torch_policy_is_of_the_checkpoint_that_was_named"},
    "learn.TorchPolicy.forward": {
        "observation": f"{OWN}::test_a_torch_policy_is_of_the_checkpoint_that_was_named",
        "memory": f"{RECURRENT}::test_a_collector_acts_with_what_the_policy_remembers",
    },
    "learn.TorchPolicy.distribution": {
        "observation": f"{OWN}::test_a_torch_policy_is_of_the_checkpoint_that_was_named",
        "memory": f"{RECURRENT}::test_the_torch_module_has_the_distribution_of_what_it_remembers",
    },
    "learn.TorchPolicy.predict": {
        "memory": f"{RECURRENT}::test_a_policy_remembers_its_episode_until_another_begins",
        "observation": "test_learn_policy::test_the_torch_module_takes_the_names_and_gives_the_same_actions",
    },
    "learn.export": {"run_dir to output which": "test_learn_export::test_where_it_goes"},
    "learn.evaluate": {
        "atari": f"{ATARI}::test_training_preprocesses_by_default_and_evaluates_whole_games",
        "policy": f"{MODULES}::test_a_module_is_trained_where_it_is_and_given_again_to_load",
        "device": f"{MODULES_REFUSED}::test_a_device_that_is_not_there_is_refused_of_a_loaded_policy",
        "run_dir episodes seed deterministic num_envs num_workers": (
            "test_learn_policy::test_evaluate_is_a_function_of_its_arguments"
        ),
        "which": f"{OWN}::test_evaluate_takes_the_checkpoint_that_was_named",
        "env": "test_learn_policy::test_evaluate_refuses_another_task",
        "env_kwargs max_episode_steps frame_stack wrappers": (
            "test_learn_env_options::test_train_takes_them_and_evaluate_may_be_told_others"
        ),
    },
    "learn.preset": {
        "name": "test_learn_train::test_presets_and_names",
        "algorithm": "test_learn_a2c::test_presets_and_options_are_those_of_the_algorithm_that_is_named",
    },
    "learn.preset_for": {
        "env_id": "test_learn_train::test_presets_and_names",
        "algorithm": "test_learn_a2c::test_presets_and_options_are_those_of_the_algorithm_that_is_named",
    },
    "learn.config_names": {
        "algorithm": "test_learn_a2c::test_presets_and_options_are_those_of_the_algorithm_that_is_named"
    },
    "learn.preset_names": {
        "algorithm": "test_learn_a2c::test_presets_and_options_are_those_of_the_algorithm_that_is_named"
    },
    # --- Gymnasium's classes, plug-ins
    "compat.gymnasium.AsyncVectorEnv": {
        "env_fns": f"{COMPAT}::test_workers_may_share_environments",
        "shared_memory": f"{OWN}::test_compat_refuses_spaces_without_arrays_for_shared_memory_alone",
        "copy": f"{OWN}::test_compats_copy_says_whether_observations_are_views",
        "context": f"{COMPAT}::test_every_context_starts",
        "daemon": f"{OWN}::test_compats_daemon_is_shown_of_its_processes",
        "worker": f"{COMPAT}::test_a_custom_worker_is_run_by_gymnasiums_own_class",
        "observation_mode": f"{COMPAT}::test_spaces_may_differ_in_their_bounds_where_that_is_said",
        "autoreset_mode": f"{COMPAT}::test_what_users_read_is_what_they_gave",
        "max_concurrency num_workers": f"{COMPAT}::test_workers_may_share_environments",
        "on_fault": f"{COMPAT}::test_a_lost_environment_is_replaced_where_that_is_asked",
        "worker_options": f"{COMPAT}::test_workers_are_set_up_as_asked",
    },
    "compat.gymnasium.AsyncVectorEnv.reset_async": {
        "seed options": f"{OWN}::test_compats_halves_take_what_the_whole_takes",
    },
    "compat.gymnasium.AsyncVectorEnv.reset_wait": {
        "timeout": f"{OWN}::test_compats_reset_and_close_have_their_timeouts"
    },
    "compat.gymnasium.AsyncVectorEnv.step_async": {
        "actions": f"{COMPAT}::test_the_result_of_a_call_whose_time_was_over_is_not_the_next_ones",
    },
    "compat.gymnasium.AsyncVectorEnv.step_wait": {
        "timeout": f"{COMPAT}::test_the_result_of_a_call_whose_time_was_over_is_not_the_next_ones",
    },
    "compat.gymnasium.AsyncVectorEnv.call_async": {
        "name args kwargs": f"{OWN}::test_compats_halves_take_what_the_whole_takes",
    },
    "compat.gymnasium.AsyncVectorEnv.close_extras": {
        "timeout": f"{OWN}::test_compats_reset_and_close_have_their_timeouts",
        "terminate": f"{COMPAT}::test_calls_out_of_order_have_the_peers_words",
    },
    "compat.gymnasium.SyncVectorEnv": {
        "env_fns": f"{COMPAT}::test_the_serial_class_refuses_to_step_what_has_ended",
        "copy": f"{OWN}::test_compats_copy_says_whether_observations_are_views",
        "observation_mode": f"{COMPAT}::test_spaces_may_differ_in_their_bounds_where_that_is_said",
        "autoreset_mode": f"{COMPAT}::test_the_serial_class_refuses_to_step_what_has_ended",
    },
    "compat.gymnasium.SyncVectorEnv.reset_async": {
        "seed options": f"{OWN}::test_compats_halves_take_what_the_whole_takes",
    },
    "compat.gymnasium.SyncVectorEnv.step_async": {
        "actions": f"{OWN}::test_compats_halves_take_what_the_whole_takes",
    },
    "compat.gymnasium.SyncVectorEnv.step_wait": {
        "timeout": Because("VectorEnv's: what is stepped in the caller's thread cannot be left before it is done"),
    },
    # --- Stable-Baselines3's
    "compat.sb3.SubprocVecEnv": {
        "env_fns": f"{SB3_WORKERS}::test_environments_are_in_processes_of_their_own_or_share_some",
        "start_method": f"{SB3_WORKERS}::test_every_start_method_starts",
        "num_workers": f"{SB3_WORKERS}::test_an_environment_that_raises_is_replaced_where_that_is_asked",
        "on_fault": f"{SB3_WORKERS}::test_a_killed_worker_is_replaced_where_that_is_asked",
        "worker": f"{SB3_WORKERS}::test_workers_are_set_up_as_asked",
    },
    "compat.sb3.SubprocVecEnv.step": {"actions": f"{SB3}::test_a_wrong_number_of_actions_steps_nothing"},
    "compat.sb3.SubprocVecEnv.step_async": {"actions": f"{SB3_WORKERS}::test_calls_out_of_order_are_named"},
    "compat.sb3.SubprocVecEnv.has_attr": {
        "attr_name": f"{SB3}::test_attributes_and_methods_are_reached_by_indices",
    },
    "compat.sb3.SubprocVecEnv.get_attr": {
        "attr_name indices": f"{SB3}::test_attributes_and_methods_are_reached_by_indices",
    },
    "compat.sb3.SubprocVecEnv.set_attr": {
        "attr_name value indices": f"{SB3}::test_attributes_and_methods_are_reached_by_indices",
    },
    "compat.sb3.SubprocVecEnv.env_method": {
        "method_name method_args indices method_kwargs": f"{SB3}::test_attributes_and_methods_are_reached_by_indices",
    },
    "compat.sb3.SubprocVecEnv.env_is_wrapped": {
        "wrapper_class indices": f"{SB3}::test_wrappers_of_the_environments_are_found",
    },
    "compat.sb3.DummyVecEnv": {"env_fns": f"{SB3}::test_one_environment_twice_is_refused_in_the_peers_words"},
    "compat.sb3.DummyVecEnv.step_async": {"actions": f"{SB3}::test_a_wrong_number_of_actions_steps_nothing"},
    "compat.gymnasium.register": {"env_id arguments": f"{OWN}::test_register_hands_its_arguments_on"},
    "compat.gymnasium.unregister": {"env_id": f"{COMPAT}::test_make_vec_of_gymnasium_reaches_shoal"},
    # --- EnvPool's
    "compat.envpool.make": {
        "task_id num_envs num_threads seed": f"{ENVPOOL}::test_a_program_of_synchronous_steps_has_gymnasiums_trajectories",
        "env_type max_num_players gym_reset_return_info": (
            f"{ENVPOOL}::test_what_has_no_meaning_here_is_refused_with_what_to_write"
        ),
        "batch_size": f"{ENVPOOL}::test_a_program_of_send_and_recv_has_them_too",
        "max_episode_steps": f"{ENVPOOL}::test_spaces_are_those_of_one_environment_and_a_spec_has_them",
        "thread_affinity_offset": f"{ENVPOOL}::test_threads_and_their_affinity",
        "options": f"{ENVPOOL}::test_other_options_are_make_vecs_or_the_environments",
    },
    "compat.envpool.make_dm": {"task_id options": f"{ENVPOOL}::test_the_other_names_of_make"},
    "compat.envpool.make_gym": {"task_id options": f"{ENVPOOL}::test_the_other_names_of_make"},
    "compat.envpool.make_gymnasium": {"task_id options": f"{ENVPOOL}::test_the_other_names_of_make"},
    "compat.envpool.make_spec": {
        "task_id options": f"{ENVPOOL}::test_spaces_are_those_of_one_environment_and_a_spec_has_them"
    },
    "compat.envpool.EnvPool.reset": {"env_id seed options": f"{ENVPOOL}::test_some_environments_are_reset"},
    "compat.envpool.EnvPool.send": {
        "action env_id": f"{ENVPOOL}::test_rows_of_synchronous_steps_are_in_the_order_in_which_they_were_sent"
    },
    "compat.envpool.EnvPool.step": {
        "action env_id": f"{ENVPOOL}::test_some_of_those_that_are_stepped_together_are_refused_with_what_to_write"
    },
    "compat.envpool.EnvPool.recv": {
        "reset return_info timeout": f"{ENVPOOL}::test_recv_returns_what_reset_returns_where_it_is_told_so"
    },
    "compat.envpool.EnvPool.render": {
        "env_ids camera_id": f"{ENVPOOL}::test_frames_are_those_of_the_environments_that_are_named"
    },
    "compat.envpool.EnvPool.seed": {"seed": f"{ENVPOOL}::test_seed_warns_and_xla_is_not_there"},
    "compat.envpool.EnvPool.close_extras": {"kwargs": f"{ENVPOOL}::test_a_dead_worker_is_told_and_closes"},
    # --- CleanRL's scripts'
    "compat.cleanrl.SyncVectorEnv": {
        "env_fns copy": f"{CLEANRL}::test_copy_says_whether_observations_are_views_in_this_process",
        "observation_space action_space": f"{CLEANRL}::test_arguments_are_those_of_0_29",
    },
    "compat.cleanrl.AsyncVectorEnv": {
        "observation_space action_space": f"{CLEANRL}::test_arguments_are_those_of_0_29",
        "shared_memory context daemon worker": f"{CLEANRL}::test_a_worker_of_pipes_is_refused_and_not_another_class",
        "env_fns copy": f"{CLEANRL}::test_copy_says_whether_observations_of_workers_are_views",
        "num_workers": f"{CLEANRL}::test_workers_share_environments_where_that_is_asked",
        "on_fault worker_options": f"{CLEANRL}::test_a_killed_worker_is_replaced_where_that_is_asked",
    },
    "compat.cleanrl.SyncVectorEnv.step_wait": {
        "timeout": Because("compat.gymnasium.SyncVectorEnv's: the infos are looked at when the step is there"),
    },
    "compat.cleanrl.AsyncVectorEnv.step_wait": {
        "timeout": Because("compat.gymnasium.AsyncVectorEnv's: the infos are looked at when the step is there"),
    },
    "compat.cleanrl.AsyncVectorEnv.reset_async": {
        "seed options": Because(
            "compat.gymnasium.AsyncVectorEnv's: the seeds are kept, for environments that take the places of lost ones"
        ),
    },
    "compat.cleanrl.AsyncVectorEnv.reset_wait": {
        "timeout": Because(
            "compat.gymnasium.AsyncVectorEnv's: what is lost meanwhile is looked at when the reset is there"
        ),
    },
    # --- PettingZoo's
    "compat.pettingzoo.make_vec": {
        "parallel_env num_envs options": f"{PETTINGZOO}::test_rows_are_agents_and_those_of_the_dead_are_zeros",
        "base_class": f"{PETTINGZOO}::test_stable_baselines3_has_agents_as_rows",
        "env_kwargs": f"{PETTINGZOO}::test_agents_that_come_later_have_their_rows_from_the_start",
        "autoreset_mode": f"{PETTINGZOO}::test_resets_take_options_seeds_and_a_mask_of_environments",
    },
    "compat.pettingzoo.ParallelVectorEnv.reset": {
        "seed options": f"{PETTINGZOO}::test_resets_take_options_seeds_and_a_mask_of_environments"
    },
    "compat.pettingzoo.ParallelVectorEnv.step": {
        "actions": f"{PETTINGZOO}::test_rows_are_agents_and_those_of_the_dead_are_zeros"
    },
    "compat.pettingzoo.ParallelVectorEnv.close_extras": {
        "kwargs": f"{PETTINGZOO}::test_environments_are_closed_in_time"
    },
    # --- moolib's
    "compat.moolib.EnvPool": {
        "create_env batch_size num_batches": f"{MOOLIB}::test_a_loop_over_two_batches_sees_what_its_environments_return",
        "num_processes worker": f"{MOOLIB}::test_workers_are_set_up_as_asked",
        "timeout": f"{MOOLIB}::test_a_late_step_is_still_under_way_after_its_timeout",
        "on_fault": f"{MOOLIB}::test_a_killed_worker_is_replaced_where_that_is_asked",
    },
    "compat.moolib.EnvPool.step": {
        "batch_index action": f"{MOOLIB}::test_whole_numbers_of_any_kind_are_actions_and_others_are_refused"
    },
    "compat.moolib.EnvStepperFuture.result": {
        "timeout": f"{MOOLIB}::test_a_late_step_is_still_under_way_after_its_timeout"
    },
    "envs.load_plugin": {"path": "test_examples_cpp::test_a_file_that_is_no_plugin_is_named"},
}

# Calls that have the argument under another name than the callable's own last one.
ALSO_CALLED: dict[str, tuple[str, ...]] = {
    "VectorEnv.close_extras": ("close",),
    "compat.envpool.EnvPool.close_extras": ("close",),
    "compat.pettingzoo.ParallelVectorEnv.close_extras": ("close",),
    "compat.gymnasium.AsyncVectorEnv.close_extras": ("close",),
    "learn.Trainer": ("train",),
    "learn.train": ("Trainer",),
    "multiprocessing.Options": ("get_context",),
    "serve.LocalModel.__call__": ("model",),
    "serve.ServiceModel.__call__": ("model",),
}

# Flags of commands: the commands' own tests, by file.
COMMANDS: dict[str, tuple[str, ...]] = {
    "train": (
        ATARI,
        "test_cli",
        "test_cli_train",
        "test_cli_train_resume",
        "test_learn_env_options",
        "test_examples_cpp",
        REMOTE,
    ),
    "collect": (REMOTE,),
    "evaluate": ("test_cli_eval", "test_examples_cpp", OWN),
    "plot": ("test_cli", "test_cli_train"),
    "envs": ("test_cli", "test_examples_cpp"),
    "guide": ("test_cli_guide",),
    "doctor": ("test_doctor",),
    "stat": ("test_serve_observing", "test_stat", "test_stat_runs"),
    "bench": ("test_bench", "test_bench_learning", "test_cli", OWN, "test_trace"),
    "test": ("test_cli", "test_test_all", OWN),
    "lint": ("test_cli_lint",),
    "docs": ("test_cli_docs",),
    "trace": ("test_trace",),
    "export": ("test_learn_export",),
}
