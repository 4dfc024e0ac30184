# hipplan on ROCm's runtime. Built from the root of the repository, after `make release` (docs/containers.md).
FROM rocm/dev-ubuntu-24.04:7.2.4

# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install --yes --no-install-recommends python3-venv \
 && rm -rf /var/lib/apt/lists/*

# The wheel for the image's own Python; what it depends on comes from PyPI.
COPY build/release/*.whl /opt/wheels/
RUN tag=$(python3 -c 'import sys; print("cp%d%d" % sys.version_info[:2])') \
 && python3 -m venv /opt/hipplan \
 && /opt/hipplan/bin/pip install --no-cache-dir /opt/wheels/hipplan-*-"$tag"-manylinux*.whl
ENV PATH=/opt/hipplan/bin:$PATH

# An image is built without a GPU, so this is the simulator. CMD runs on the GPUs that the container is given.
WORKDIR /plans
COPY plans/quickstart.yaml .
RUN hipplan apply quickstart.yaml --once --runtime sim --quiet
CMD ["hipplan", "apply", "quickstart.yaml", "--once"]
