# Shoal in an image: `docker build -t shoal .`, `docker run --rm shoal shoal doctor`. It needs no privilege, and no larger /dev/shm.
FROM python:3.11-slim-bookworm AS build
RUN apt-get update && apt-get install -y --no-install-recommends \
    cmake g++ git libfmt-dev libspdlog-dev ninja-build nlohmann-json3-dev
COPY . /shoal
WORKDIR /shoal
RUN pip install --no-cache-dir -c requirements.lock -r requirements-wheel.txt && .ci/wheel --out /wheels "$(which python3)"

FROM python:3.11-slim-bookworm
COPY --from=build /wheels /wheels
RUN pip install --no-cache-dir /wheels/*.whl && rm -r /wheels && useradd --create-home user
USER user
WORKDIR /home/user
CMD ["shoal", "doctor"]
