export TF_FORCE_GPU_ALLOW_GROWTH=true
tensorflow_model_server \
  --port=9000 \
  --model_name=model1 \
  --model_base_path=/path/to/model1 \
  --model_name=model2 \
  --model_base_path=/path/to/model2
