tensorflow_model_server --model_config_file=model_server_config.json --port=9000 --intra_op_parallelism_threads=8
